"""Running a sweep: the table, resuming, failures, workers that die, and what must not be overwritten."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sim.config.errors import Places
from sim.config.load import LoadedConfig
from sim.errors import ConfigError, ResultsError
from sim.sweeps.expand import Sweep, expand
from sim.sweeps.run import run_sweep
from workloads.fingerprint import sequence_fingerprints

BASE: dict[str, Any] = {
    "name": "tiny",
    "engine": {"block_size": 4, "max_num_seqs": 8},
    "memory": {"num_gpu_blocks": 60},
    "workload": {
        "kind": "shared_prefix",
        "requests": 20,
        "prefix_tokens": 24,
        "suffix_tokens": 10,
        "output_tokens": 6,
    },
}
GRID = {"engine.block_size": [4, 8], "memory.num_gpu_blocks": [40, 80, 160]}
TABLES = ("points.parquet", "points.csv", "sweep.json")


def points(section: dict[str, Any] | None = None, **more: Any) -> Sweep:
    """A sweep over the tiny configuration."""
    return expand(LoadedConfig(BASE | more | {"sweep": section or {"grid": GRID}}, Places()))


def tables(folder: Path) -> list[bytes]:
    """The bytes of what a sweep writes beside its runs."""
    return [(folder / name).read_bytes() for name in TABLES]


def stamps(folder: Path) -> dict[str, int]:
    """When each finished run was finished."""
    return {file.parent.name: file.stat().st_mtime_ns for file in folder.glob("*/manifest.json")}


def test_the_table_has_every_parameter_and_every_figure(tmp_path: Path) -> None:
    sweep = points()
    folder = run_sweep(sweep, out=tmp_path)
    table = pd.read_parquet(folder / "points.parquet")
    again = pd.read_csv(folder / "points.csv")
    assert list(again.columns) == list(table.columns)
    for name in ("point", "engine.block_size", "hit_rate.tokens", "evictions", "simulated_s"):
        assert list(again[name]) == list(table[name])
    assert list(table["status"]) == ["finished"] * 6
    assert list(table["engine.block_size"]) == [4, 4, 4, 8, 8, 8]
    for number, row in table.iterrows():
        run = folder / str(row["folder"])
        summary = json.loads((run / "summary.json").read_text())
        assert row["hit_rate.tokens"] == summary["hit_rate"]["tokens"]
        assert row["evictions"] == summary["evictions"]
        assert (
            row["latency.vllm:time_to_first_token_seconds.p99"]
            == (summary["latency"]["vllm:time_to_first_token_seconds"]["p99"])
        )
        assert row["point"] == number
    assert table["evictions"].nunique() > 1
    about = json.loads((folder / "sweep.json").read_text())
    assert about["parameters"] == list(GRID)
    assert about["held_fixed"]["engine.max_num_seqs"] == 8
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == sorted(TABLES)  # no lock, nothing hidden left


ODD_TRACE = (
    '{"timestamp": 0, "input_length": 30, "output_length": 9, "hash_ids": [1, 2]}\n'
    '{"timestamp": 0, "input_length": 27, "output_length": 3, "hash_ids": [1, 3]}\n'
    "no json\n"
    '{"timestamp": 900, "input_length": 30, "output_length": 1, "hash_ids": [1, 2]}\n'
)
WORKLOADS: dict[str, dict[str, Any]] = {
    "generated": {},
    "odd trace": {"kind": "trace", "format": "mooncake", "options": {"hash_block_size": 16}, "skip_bad_lines": True},
    "closed loop": {"kind": "agents", "sessions": 3, "system_tokens": 40, "task_tokens": 9, "tool_result_tokens": 20},
    "images": {"kind": "multimodal", "requests": 10, "tokens_per_image": 20},
    "salts": {"kind": "salted_tenants", "requests": 10, "system_tokens": 20, "tenant_tokens": 9, "suffix_tokens": 9},
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_shared_workloads_change_nothing(tmp_path: Path, kind: str) -> None:
    """A point of a sweep is the run that `kvsim run` makes, byte by byte."""
    from sim.experiment import run

    workload = WORKLOADS[kind] or BASE["workload"]
    if kind == "odd trace":
        (tmp_path / "odd.jsonl").write_text(ODD_TRACE)
        workload = workload | {"path": str(tmp_path / "odd.jsonl"), "limit": 3}
    engine = {"block_size": 4, "max_num_seqs": 8, "max_model_len": 4096}
    budgets = {"engine.block_size": [4, 16], "memory.num_gpu_blocks": [600, 1200]}
    sweep = points({"grid": budgets}, workload=workload, engine=engine)
    folder = run_sweep(sweep, out=tmp_path / "sweep")
    for point in sweep.points[::3]:
        alone = run(point.config, out=tmp_path / "run")
        for name in ("summary.json", "requests.parquet", "steps.parquet", "evictions.parquet"):
            assert (folder / point.folder / name).read_bytes() == (alone.path / name).read_bytes()


@pytest.mark.parametrize("implementation", ["fast", "reference"])
def test_known_fingerprints_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, implementation: str) -> None:
    """Points make no fingerprint of their own: the packed ones are looked up."""
    from workloads import packed

    asked: list[int] = []
    real = packed.PackedWorkload.fingerprints

    def count(self: packed.PackedWorkload, spec: Any, block_size: int) -> Any:
        asked.append(block_size)
        return real(self, spec, block_size)

    monkeypatch.setattr(packed.PackedWorkload, "fingerprints", count)
    made: list[int] = []
    monkeypatch.setattr(
        packed, "sequence_fingerprints", lambda spec, size: made.append(size) or sequence_fingerprints(spec, size)
    )
    run_sweep(points(engine={"block_size": 4, "implementation": implementation}), out=tmp_path)
    assert sorted(asked) == [4] * 60 + [8] * 60
    assert sorted(made) == [4] * 20 + [8] * 20  # once per block size and request


def test_resume_repeats_nothing_and_changed_points_run_again(tmp_path: Path) -> None:
    whole = run_sweep(points(), out=tmp_path / "whole")
    folder = run_sweep(points({"grid": GRID | {"engine.block_size": [4]}}), out=tmp_path / "parts")
    before = stamps(folder)
    seen: list[tuple[int, int]] = []
    run_sweep(points(), out=tmp_path / "parts", resume=True, progress=lambda done, failed: seen.append((done, failed)))
    assert seen == [(3, 0), (4, 0), (5, 0), (6, 0)]
    after = stamps(folder)
    assert {name: after[name] for name in before} == before
    assert len(after) == 6
    assert tables(folder) == tables(whole)
    run_sweep(points(engine={"block_size": 4, "max_num_seqs": 4}), out=tmp_path / "parts", resume=True)
    assert len(stamps(folder)) == 12  # all of them changed, so all ran again beside the old ones


def test_a_changed_trace_runs_again(tmp_path: Path) -> None:
    trace = tmp_path / "ids.jsonl"
    rows = ['{"prompt_token_ids": [5, 6, 7, 8, 9], "output_tokens": 2}\n'] * 3
    trace.write_text("".join(rows))
    section = {"grid": {"memory.num_gpu_blocks": [40, 80]}}
    workload = {"kind": "trace", "path": str(trace), "format": "token_ids"}
    folder = run_sweep(points(section, workload=workload), out=tmp_path, resume=True)
    before = stamps(folder)
    run_sweep(points(section, workload=workload), out=tmp_path, resume=True)
    assert stamps(folder) == before
    trace.write_text("".join(rows[:2]))
    run_sweep(points(section, workload=workload), out=tmp_path, resume=True)
    assert all(stamps(folder)[name] > stamp for name, stamp in before.items())
    assert list(pd.read_parquet(folder / "points.parquet")["requests.total"]) == [2, 2]


BAD_TRACE = '{"prompt_token_ids": [5, 6], "output_tokens": 2}\nno json\n'


def failing(tmp_path: Path) -> Sweep:
    """Three points, of which the second reads a trace that is damaged beyond its first line."""
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(BAD_TRACE.splitlines()[0] + "\n")
    bad.write_text(BAD_TRACE)
    variants = [
        {"name": name, "set": {"workload": {"kind": "trace", "path": str(path), "format": "token_ids", **more}}}
        for name, path, more in (("a", good, {}), ("b", bad, {}), ("c", bad, {"skip_bad_lines": True}))
    ]
    return points({"variants": variants})


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_point_is_recorded_or_ends_the_sweep(tmp_path: Path, jobs: int) -> None:
    sweep = failing(tmp_path)
    folder = run_sweep(sweep, out=tmp_path, continue_on_error=True, jobs=jobs)
    table = pd.read_parquet(folder / "points.parquet")
    assert list(table["status"]) == ["finished", "failed", "finished"]
    assert "bad.jsonl" in str(table["error"][1])
    assert "\n" not in str(table["error"][1])
    assert table["error"][0] is None or pd.isna(table["error"][0])
    with pytest.raises(ResultsError, match=r"point 1 \(variant=b\).*--resume goes on") as caught:
        run_sweep(sweep, out=tmp_path / "stops", jobs=jobs)
    assert len(str(caught.value).splitlines()) == 1
    assert "failed" in set(pd.read_parquet(tmp_path / "stops" / "tiny" / "points.parquet")["status"])


def test_a_workload_that_cannot_be_made_is_the_error_of_all_its_points(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(BAD_TRACE)
    workload = {"kind": "trace", "path": str(bad), "format": "token_ids"}
    sweep = points({"grid": {"memory.num_gpu_blocks": [40, 80]}}, workload=workload)
    folder = run_sweep(sweep, out=tmp_path, continue_on_error=True)
    assert list(pd.read_parquet(folder / "points.parquet")["status"]) == ["failed", "failed"]
    with pytest.raises(ResultsError, match=r"bad\.jsonl"):
        run_sweep(sweep, out=tmp_path)


@pytest.mark.long
def test_a_point_that_takes_its_worker_with_it_is_the_only_one_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_queue.py").write_text(
        "import os\n"
        "from sim.eviction.fifo import Fifo\n"
        "class Deadly(Fifo):\n"
        "    def victim(self):\n"
        "        os._exit(9)\n"
    )
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)  # workers of other tests do not know the module
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sweep = points({"grid": {"eviction.policy": ["lru", "deadly_queue:Deadly", "fifo"]}})
    folder = run_sweep(sweep, out=tmp_path, jobs=2, continue_on_error=True)
    table = pd.read_parquet(folder / "points.parquet")
    assert list(table["status"]) == ["finished", "failed", "finished"]
    assert "its worker died" in str(table["error"][1])


def test_a_living_sweep_is_not_disturbed(tmp_path: Path) -> None:
    def intrude(done: int, failed: int) -> None:
        if done == 1:
            with pytest.raises(ResultsError, match=r"a sweep \(process \d+\) is writing here"):
                run_sweep(points(), out=tmp_path)

    run_sweep(points(), out=tmp_path, progress=intrude)


def damaged_about(folder: Path) -> str:
    (folder / "sweep.json").write_text("{")
    return r"sweep\.json: damaged"


def another_format(folder: Path) -> str:
    about = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps(about | {"format_version": 99}))
    return r"a sweep of kvsim .* \(format 99\)"


def another_version(folder: Path) -> str:
    file = next(folder.glob("*/manifest.json"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"kvsim_version": "9.9"}))
    return r"a run of kvsim 9\.9"


def damaged_table(folder: Path) -> str:
    data = (folder / "points.parquet").read_bytes()
    (folder / "points.parquet").write_bytes(data[: len(data) // 2])
    return r"points\.parquet: damaged"


@pytest.mark.parametrize("spoil", [damaged_about, another_format, another_version, damaged_table])
def test_what_is_damaged_or_of_another_version_is_not_overwritten(tmp_path: Path, spoil: Any) -> None:
    sweep = points({"grid": {"memory.num_gpu_blocks": [40, 80]}})
    folder = run_sweep(sweep, out=tmp_path)
    whole = tables(folder)
    message = spoil(folder)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for resume in (False, True):
        with pytest.raises(ResultsError, match=message) as caught:
            run_sweep(sweep, out=tmp_path, resume=resume)
        assert "--overwrite" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    run_sweep(sweep, out=tmp_path, overwrite=True)
    assert tables(folder) == whole


def test_a_strangers_folder_stays(tmp_path: Path) -> None:
    sweep = points()
    mine = tmp_path / "tiny" / sweep.points[3].folder
    mine.mkdir(parents=True)
    (mine / "diary.txt").write_text("dear diary")
    with pytest.raises(ResultsError, match="exists and is no run of kvsim"):
        run_sweep(sweep, out=tmp_path, overwrite=True)
    assert [p.name for p in (tmp_path / "tiny").iterdir()] == [mine.name]
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "tiny").write_text("")
    with pytest.raises(ResultsError, match="is a file"):
        run_sweep(sweep, out=tmp_path / "file")


def test_a_damaged_summary_is_named_when_resuming(tmp_path: Path) -> None:
    sweep = points()
    folder = run_sweep(sweep, out=tmp_path)
    (folder / sweep.points[1].folder / "summary.json").write_text("{")
    with pytest.raises(ResultsError, match=r"summary\.json: cannot be read .*remove that folder and --resume"):
        run_sweep(sweep, out=tmp_path, resume=True)


def test_no_cluster_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'kvsim\[dask\]'"):
        run_sweep(points(), out=tmp_path, dask="local")


@pytest.mark.parametrize(("jobs", "most"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.long)])
def test_few_workloads_lie_packed_at_a_time(tmp_path: Path, jobs: int, most: int) -> None:
    """Seeds vary fastest in the table; points run by workload, so that what was packed can soon go."""
    sweep = points({"grid": {"memory.num_gpu_blocks": [40, 80]}, "seeds": 5})
    seen: list[int] = []
    run_sweep(
        sweep,
        out=tmp_path,
        jobs=jobs,
        progress=lambda done, failed: seen.append(len(list((tmp_path / "tiny").glob(".workload-*")))),
    )
    assert len(seen) == 11
    assert 0 < max(seen) <= most
    assert list(pd.read_csv(tmp_path / "tiny" / "points.csv")["seed"]) == [0, 1, 2, 3, 4] * 2
