"""`kvsim sweep` from the outside: what it prints, refuses and returns."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from sim.cli.main import main

CONFIG = """\
name: tiny
engine: {block_size: 4, max_num_seqs: 8}
memory: {num_gpu_blocks: 60}
workload: {kind: shared_prefix, requests: 20, prefix_tokens: 24, suffix_tokens: 10, output_tokens: 6}
"""
SWEEP = """\
sweep:
  grid:
    engine.block_size: [4, 8]
"""


def kvsim(*arguments: object) -> int:
    """Run the command; its exit status."""
    try:
        main(["sweep", *map(str, arguments)])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("tiny.yaml")
    path.write_text(CONFIG + SWEEP)
    return path


def test_runs_reports_and_says_where(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvsim(config, "--sweep", "memory.num_gpu_blocks=40,80", "--report", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "folder": "results/tiny", "points": 4, "failed": 0, "report": "results/tiny/report.html",
    }  # fmt: skip
    assert "tiny: 4 points" in err
    assert "points: results/tiny/points.parquet and points.csv" in err
    assert Path("results/tiny/report.html").stat().st_size > 10_000
    assert list(pd.read_csv("results/tiny/points.csv")["memory.num_gpu_blocks"]) == [40, 80, 40, 80]


def test_dry_run_lists_and_writes_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvsim(config, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1"]
    assert lines[1].endswith("engine.block_size=8")
    assert kvsim(config, "--dry-run", "--json") == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert points[0]["parameters"] == {"engine.block_size": 4}
    assert not Path("results").exists()


def test_set_trace_and_serve_reach_every_point(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvsim(config, "--set", "workload.requests=5", "-q") == 0
    assert list(pd.read_csv("results/tiny/points.csv")["requests.total"]) == [5, 5]
    assert capsys.readouterr() == ("", "")
    config.write_text("memory: {kv_cache_memory: 20GiB}\nworkload: {kind: shared_prefix, requests: 3}\n")
    serve = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 7 --max-model-len 4096"
    assert kvsim(config, "--serve", serve, "--sweep", "engine.block_size=16,32", "-q") == 0
    table = pd.read_csv("results/tiny/points.csv")
    assert list(table["engine.max_num_seqs"]) == [7, 7]
    assert list(table["num_gpu_blocks"]) == [10240, 5120]


@pytest.mark.parametrize(
    ("text", "arguments", "line"),
    [
        (SWEEP.replace("block_size", "block_sise"), [],
         "tiny.yaml:7: sweep: engine.block_sise: unknown key; did you mean block_size?"),
        (SWEEP.replace("[4, 8]", "[]"), [], "tiny.yaml:7: sweep.grid.engine.block_size: must have at least 1 entries"),
        (SWEEP.replace("[4, 8]", "[4, 0]"), [], "tiny.yaml:7: sweep: engine.block_size: must be at least 1, got 0"),
        (SWEEP, ["--sweep", "engine.block_sise=8"], "--sweep engine.block_sise: engine.block_sise: unknown key"),
        (SWEEP, ["--sweep", "engine.block_size="], "--sweep engine.block_size=: must be PATH=V1,V2"),
        (SWEEP, ["--sweep", "memory.num_gpu_blocks=40,-1"], "--sweep memory.num_gpu_blocks: memory.num_gpu_blocks"),
        (SWEEP.replace("grid", "gird"), [], "tiny.yaml:6: sweep.gird: unknown key; did you mean grid?"),
        ("", [], "sweep: no axis to sweep"),
        ("sweep: {where: [engine.blok_size > 3], seeds: 2}\n", [], "did you mean engine.block_size"),
        ("sweep: {grid: {memory: [{num_gpu_blocks: 9}, {}]}}\n", [], "memory"),
    ],
)  # fmt: skip
def test_faults_are_one_line_and_nothing_runs(
    config: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], line: str
) -> None:
    config.write_text(CONFIG + text)
    assert kvsim(config, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err
    assert len(err.splitlines()) == 1
    assert err.startswith("kvsim: error: ")
    assert not Path("results").exists()


def test_a_million_points_ask_for_yes_and_say_how_long(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "memory.num_gpu_blocks=" + ",".join(map(str, range(100, 1100)))
    assert kvsim(config, "--sweep", many, "--sweep", "seed=" + ",".join(map(str, range(500))), "--jobs", "4") == 2
    err = capsys.readouterr().err
    assert "the sweep has 1,000,000 points, about" in err
    assert "hours with 4 jobs (its first point took" in err or "days with 4 jobs (its first point took" in err
    assert "--yes" in err
    assert not Path("results").exists()


def test_the_estimate_of_a_long_point_is_scaled_up(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    from sim.config.load import read_config
    from sim.sweeps.estimate import duration, seconds_of_a_point
    from sim.sweeps.expand import first_point

    point = first_point(read_config(config, ["workload.requests=2000"]))
    short = seconds_of_a_point(point, most_s=0.02)
    assert "of 2,000 requests" in short.how
    assert not short.at_least
    assert short.seconds > 0.02
    assert duration(90 * 60) == "1.5 hours"
    assert duration(45) == "45 seconds"
    assert not list(Path.cwd().glob("results*"))


def test_failed_points_make_the_exit_status_1(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.jsonl").write_text('{"prompt_token_ids": [5, 6], "output_tokens": 2}\nno json\n')
    config.write_text(
        CONFIG.partition("workload")[0] + "workload: {kind: trace, path: bad.jsonl, format: token_ids}\n"
        "sweep: {grid: {workload.skip_bad_lines: [false, true]}}\n"
    )
    assert kvsim(config, "--continue-on-error") == 1
    assert "1 point failed; the column error" in capsys.readouterr().err
    assert kvsim(config, "-q") == 2
    err = capsys.readouterr().err
    assert "point 0 (workload.skip_bad_lines=False)" in err
    assert len(err.splitlines()) == 1


def test_results_of_another_version_are_not_overwritten(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvsim(config, "-q") == 0
    about = Path("results/tiny/sweep.json")
    about.write_text(about.read_text().replace('"format_version": 1', '"format_version": 0'))
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    assert kvsim(config, "-q", "--resume") == 2
    assert "(format 0)" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()} == before
    assert kvsim(config, "-q", "--overwrite") == 0


def test_the_bar_counts_points_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    from sim.sweeps.progress import SweepBar

    with SweepBar(4, shown=True) as bar:
        bar(1, 0)
        bar(3, 1)
        bar(4, 1)
    err = capsys.readouterr().err
    assert "4/4" in err
    assert "1 failed" in err
    assert bar.failed == 1
