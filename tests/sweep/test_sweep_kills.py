"""Sweeps that are killed go on; workers that are killed cost their points a retry."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim.config.load import read_config
from sim.errors import ConfigError
from sim.sweeps.expand import expand
from sim.sweeps.run import run_sweep

CONFIG = """
name: tiny
engine: {block_size: 4, max_num_seqs: 8, implementation: reference}
memory: {num_gpu_blocks: 60}
workload: {kind: shared_prefix, requests: 150, prefix_tokens: 24, suffix_tokens: 10, output_tokens: 6}
sweep:
  grid: {engine.block_size: [4, 8], memory.num_gpu_blocks: [40, 80, 160, 320]}
"""
TABLES = ("points.parquet", "points.csv", "sweep.json")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def whole(config: Path) -> list[bytes]:
    """The tables of a sweep that nothing has disturbed."""
    return tables(sweep(config, config.parent / "whole"))


def command(config: Path, out: Path, *options: str) -> list[str]:
    kvsim = "from sim.cli.main import main; main()"
    return [sys.executable, "-c", kvsim, "sweep", str(config), "--out", str(out), "-q", *options]


def sweep(config: Path, out: Path, *options: str) -> Path:
    """Run a sweep to its end in a process of its own."""
    done = subprocess.run(command(config, out, *options), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "tiny"


def tables(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in TABLES]


def finished(folder: Path) -> dict[str, int]:
    """Finished points and when they were finished."""
    there = [p for p in folder.glob("*/manifest.json") if not p.parent.name.endswith((".partial", ".old"))]
    return {file.parent.name: file.stat().st_mtime_ns for file in there}


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_killed_sweep_goes_on_where_it_was(config: Path, whole: list[bytes], tmp_path: Path, jobs: int) -> None:
    process = subprocess.Popen(command(config, tmp_path, "--jobs", str(jobs)), stderr=subprocess.PIPE)
    folder = tmp_path / "tiny"
    try:
        until = time.monotonic() + 60
        while len(finished(folder)) < 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        assert process.poll() is None, process.communicate()
    finally:
        process.kill()  # no chance to tidy up
        process.communicate()
    before = finished(folder)
    assert 2 <= len(before) < 8
    assert not (folder / "points.parquet").exists()
    sweep(config, tmp_path, "--jobs", str(jobs), "--resume")
    after = finished(folder)
    # (a worker may finish its point after its sweep was killed)
    assert {name: after[name] for name in before} == before
    assert len(after) == 8
    assert tables(folder) == whole
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == sorted(TABLES)
    assert not list(folder.glob("*.partial")) + list(folder.glob(".workload-*"))


def test_a_polite_kill_writes_the_table_so_far(config: Path, whole: list[bytes], tmp_path: Path) -> None:
    process = subprocess.Popen(command(config, tmp_path), stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "tiny"
    until = time.monotonic() + 60
    while not finished(folder) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    import pandas as pd

    status = list(pd.read_parquet(folder / "points.parquet")["status"])
    assert status.count("finished") == len(finished(folder))
    assert "missing" in status
    sweep(config, tmp_path, "--resume")
    assert tables(folder) == whole


DASK = """
import os, signal, sys
from pathlib import Path
from distributed import LocalCluster
from sim.config.load import read_config
from sim.sweeps.expand import expand
from sim.sweeps.run import run_sweep

if __name__ == "__main__":
    config, out = sys.argv[1:]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        killed = []

        def progress(done, failed):
            if done == 1:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)

        run_sweep(expand(read_config(config)), out=out, dask=cluster.scheduler_address, progress=progress)
    print("killed", len(killed))
"""


def test_a_killed_worker_of_a_cluster_costs_a_retry_not_the_sweep(
    config: Path, whole: list[bytes], tmp_path: Path
) -> None:
    script = tmp_path / "cluster.py"
    script.write_text(DASK)
    done = subprocess.run(
        [sys.executable, str(script), str(config), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["killed", "1"]
    assert tables(tmp_path / "tiny") == whole


@pytest.mark.long
def test_a_local_cluster_from_the_command_line(config: Path, whole: list[bytes], tmp_path: Path) -> None:
    assert tables(sweep(config, tmp_path, "--dask", "local", "--jobs", "2")) == whole


def test_no_scheduler_at_the_address_is_one_line(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.sweeps.workers.CONNECT_S", 0.3)
    points = expand(read_config(config))
    with pytest.raises(ConfigError, match=r"--dask tcp://127.0.0.1:9: no Dask scheduler answers there") as caught:
        run_sweep(points, out=tmp_path, dask="tcp://127.0.0.1:9")
    assert len(str(caught.value).splitlines()) == 1


LONELY = """
import sys
from distributed import LocalCluster
from sim.cli.main import main
import sim.sweeps.workers

if __name__ == "__main__":
    sim.sweeps.workers.CONNECT_S = 1.0
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster:
        main(["sweep", sys.argv[1], "--out", sys.argv[2], "-q", "--dask", cluster.scheduler_address])
"""


def test_a_scheduler_without_workers_is_one_line(config: Path, tmp_path: Path) -> None:
    script = tmp_path / "lonely.py"
    script.write_text(LONELY)
    argv = [sys.executable, str(script), str(config), str(tmp_path / "out")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "the scheduler has no worker" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_workers_end_when_their_sweep_is_killed(config: Path, tmp_path: Path) -> None:
    """Nobody keeps on writing for a sweep that is gone: the check that each worker does at every request."""
    script = (
        "import os, sys; from sim.sweeps.workers import _end_with\n"
        "check = _end_with(os.getppid()); check(1, None, 0.0)\n"
        "print('alive', flush=True)\n"
        "_end_with(os.getppid() + 1)(1, None, 0.0)\n"
        "print('still alive', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["alive"]
    assert done.returncode == 1
