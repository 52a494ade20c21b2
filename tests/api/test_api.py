"""The Python interface: every command in one call, tables, displays, and the same errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import sim
from sim.errors import ConfigError, KvsimError, ResultsError

mpl.use("agg")

TINY: dict[str, Any] = {
    "name": "tiny",
    "question": "what <b>fits</b>?",
    "engine": {"block_size": 4, "max_num_seqs": 8},
    "memory": {"num_gpu_blocks": 60},
    "workload": {
        "kind": "shared_prefix",
        "requests": 40,
        "prefixes": 3,
        "prefix_tokens": 24,
        "suffix_tokens": 10,
        "output_tokens": 6,
    },
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> sim.RunResults:
    return sim.run(TINY, out=tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> sim.SweepResults:
    axes = {"engine.block_size": [4, 8], "memory.num_gpu_blocks": [40, 80]}
    return sim.sweep(TINY, axes, out=tmp_path_factory.mktemp("results"))


def test_import_is_cheap() -> None:
    heavy = ("pandas", "matplotlib", "pyarrow", "simpy", "pydantic", "numpy", "joblib")
    script = f"import sim, sys; dir(sim); print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_is_there_and_documented() -> None:
    for name in sim.__all__:
        assert getattr(sim, name).__doc__, name
        assert name in dir(sim)
    with pytest.raises(AttributeError, match="nothing"):
        sim.nothing  # noqa: B018


def test_every_command_has_its_call() -> None:
    from sim.cli.main import COMMANDS

    elsewhere = {"report": "write_report", "workload": "inspect"}
    assert [c for c in COMMANDS if elsewhere.get(c, c) not in sim.__all__] == []
    assert {"convert", "workloads"} <= set(sim.__all__)


def test_run_gives_tables_and_figures(results: sim.RunResults) -> None:
    assert len(results.requests) == 40
    assert int(results.steps["finished_requests"].sum()) == 40
    assert results.config["engine"]["block_size"] == 4
    rate = results.figures.loc["hit_rate.tokens"]
    assert rate["value"] == results.summary["hit_rate"]["tokens"]
    assert "prompt tokens" in rate["definition"]
    assert "hit rate" in repr(results)


def test_display_is_escaped(results: sim.RunResults) -> None:
    shown = results._repr_html_()
    assert "what &lt;b&gt;fits&lt;/b&gt;?" in shown
    assert "evicted blocks" in shown


def test_every_plot_draws_on_given_axes(results: sim.RunResults, swept: sim.SweepResults) -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert results.plot.hit_rate_over_time(ax=ax) is ax
    assert results.plot.ttft() is not None
    assert swept.plot.heat_map("hit_rate") is not None
    assert swept.plot.hit_rate_against_memory() is not None


def test_changes_trace_and_config_objects_are_the_same_experiment(tmp_path: Path, results: sim.RunResults) -> None:
    section = {key: value for key, value in TINY.items() if key not in ("engine", "memory")}
    built = sim.ExperimentConfig(
        engine=sim.EngineConfig(block_size=8, max_num_seqs=8),
        memory={"num_gpu_blocks": 60},
        timing=sim.LinearTiming(step_s=0.04),
        **section,
    )
    by_object = sim.run(built, out=tmp_path)
    changes = {"engine.block_size": 8, "timing": {"kind": "linear", "step_s": 0.04}}
    by_change = sim.run(TINY, changes=changes, out=tmp_path)
    assert len(sim.sweep(built, {"seed": [1, 2]}, out=tmp_path / "sweep").points) == 2
    assert by_object.path == by_change.path
    assert by_object.summary["hit_rate"] != results.summary["hit_rate"]


def test_a_file_and_its_mapping_are_the_same_experiment(tmp_path: Path) -> None:
    from sim.config.yaml_io import dump_yaml

    file = tmp_path / "tiny.yaml"
    file.write_text(dump_yaml(TINY))
    assert sim.load(file, "engine.block_size=8").engine.block_size == 8
    assert sim.run(file, out=tmp_path / "a").summary == sim.run(TINY, out=tmp_path / "b").summary


def test_sweep_gives_points(swept: sim.SweepResults) -> None:
    assert swept.parameters == ["engine.block_size", "memory.num_gpu_blocks"]
    assert list(swept.points["status"]) == ["finished"] * 4
    assert list(swept.table("evictions").columns) == [*swept.parameters, "evictions"]
    assert swept.run(2).config["engine"]["block_size"] == 8
    assert "4 points" in repr(swept)
    assert "engine.block_size" in swept._repr_html_()
    with pytest.raises(ResultsError, match="did you mean evictions"):
        swept.table("eviction")
    with pytest.raises(ResultsError, match="no point 9"):
        swept.run(9)


def test_open_results_tells_runs_from_sweeps(results: sim.RunResults, swept: sim.SweepResults, tmp_path: Path) -> None:
    assert isinstance(sim.open_results(results.path), sim.RunResults)
    assert sim.open_results(results.path.parent).path == results.path  # the only run in it
    assert isinstance(sim.open_results(swept.path), sim.SweepResults)
    with pytest.raises(ResultsError, match="no results here"):
        sim.open_results(tmp_path)
    (tmp_path / "points.parquet").write_bytes(b"PAR1 is not enough")
    (tmp_path / "sweep.json").write_text('{"format_version": 1}')
    with pytest.raises(ResultsError, match="cannot be read"):
        _ = sim.SweepResults(tmp_path).points
    (tmp_path / "sweep.json").write_text('{"format_version": 99}')
    with pytest.raises(ResultsError, match="format 99"):
        sim.SweepResults(tmp_path)


def test_reports_are_written(results: sim.RunResults, swept: sim.SweepResults, tmp_path: Path) -> None:
    assert "what &lt;b&gt;" in results.report(tmp_path / "run.html").read_text()
    assert "<html" in sim.write_report(swept.path, tmp_path / "sweep.html", goal="max:hit_rate.tokens").read_text()


def test_compare(results: sim.RunResults, swept: sim.SweepResults) -> None:
    found = sim.compare([results, swept.run(3)])
    assert "memory.num_gpu_blocks" in found.settings.index
    assert found.figures.loc["requests.total"].tolist() == [40, 40]
    assert "requests.total" not in found.differing.index
    assert "Settings that differ" in repr(found)
    assert "<table" in found._repr_html_()
    with pytest.raises(ResultsError, match="two runs or more"):
        sim.compare([results])


def test_inspect_convert_and_curve(tmp_path: Path) -> None:
    looked = sim.inspect(TINY)
    assert looked.result["requests"] == 40
    assert "infinite cache" in looked.why
    assert "prompt tokens seen before" in looked._repr_html_()
    target = tmp_path / "tiny.jsonl.gz"
    assert sim.convert(TINY, target) == 40
    assert sim.inspect(target, block_size=4).result["reuse"]["cold"] == looked.result["reuse"]["cold"]
    with pytest.raises(ValueError, match="same file"):
        sim.convert(target, target)
    curves = sim.curve(TINY, ["lru", "fifo"], [10, 20, 400])
    assert sorted(set(curves.table["policy"])) == ["fifo", "lru", "optimum"]
    assert curves.table["hit_rate"].max() == curves.infinite["hit_rate"]
    assert curves.plot() is not None
    assert set(curves.needs["share"]) == {0.5, 0.9, 0.95}
    assert looked.report(tmp_path / "page").exists()


def test_plan_models_and_settings() -> None:
    plan = sim.plan(model="llama-3.1-8b", kv_cache_memory="20GiB")
    assert plan.num_blocks == 20 * 2**30 // (16 * 128 * 1024)  # 128 KiB a token
    assert "llama" in repr(plan).lower()
    assert sim.plan(serve="vllm serve meta-llama/Llama-3.1-8B --block-size 32", kv_cache_memory="20GiB").num_blocks == (
        plan.num_blocks // 2
    )
    with pytest.raises(ConfigError, match="did you mean block_size"):
        sim.plan(model="llama-3.1-8b", blok_size=3)
    with pytest.raises(KvsimError, match="Llama"):
        sim.plan(model="lama-3.1-8b", kv_cache_memory="20GiB")
    assert len(sim.models()) > 3
    assert len(sim.gpus()) > 3
    assert sim.settings("engine").loc["block_size", "default"] == "16"
    assert "memory" in sim.settings().index
    whole = sim.EngineConfig.model_fields["long_prefill_token_threshold"].description
    assert whole is not None
    assert len(whole) > 50
    assert whole in sim.settings("engine")._repr_html_()
    assert whole in repr(sim.settings("engine"))
    assert "suffix_tokens" in sim.workloads("shared_prefix").index
    assert "mooncake" in set(sim.workloads()["name"])
    assert "properties" in sim.schema()
    with pytest.raises(ConfigError, match="did you mean engine"):
        sim.settings("engin")


def test_fit_finds_what_made_the_steps(tmp_path: Path) -> None:
    lines = ["prefill_tokens,decode_requests,context_tokens,seconds"]
    lines += [
        f"{p},{d},{c},{0.01 + p * 1e-5 + d * 1e-4 + c * 1e-7}" for p in (0, 500) for d in (1, 9) for c in (0, 999)
    ]
    file = tmp_path / "steps.csv"
    file.write_text("\n".join(lines) + "\n")
    assert sim.fit(file).coefficients["prefill_token_s"] == pytest.approx(1e-5, rel=1e-3)
    with pytest.raises(ValueError, match="needs model and gpu"):
        sim.fit(file, "roofline")


def test_verify() -> None:
    steps = sorted(Path("tests/golden/steps").glob("*.json*"))[:2]
    found = sim.verify(steps)
    assert list(found["difference"]) == [None, None]
    assert (found["compared"] > 0).all()


def test_faults_are_said_as_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean block_size"):
        sim.run(TINY, changes={"engine.block_sise": 8}, out=tmp_path)
    with pytest.raises(ConfigError, match="did you mean block_size"):
        sim.sweep(TINY, {"engine.block_sise": [8]}, out=tmp_path)
    with pytest.raises(ConfigError, match="10,000 points"):
        sim.sweep(TINY, {"engine.block_size": range(1, 101), "memory.num_gpu_blocks": range(2, 102)}, out=tmp_path)
    built = sim.ExperimentConfig(memory={"num_gpu_blocks": 60}, workload={"kind": "trace", "path": "nowhere.jsonl"})
    with pytest.raises(ConfigError, match="nowhere"):
        sim.run(built, out=tmp_path)
    assert not list(tmp_path.iterdir())
