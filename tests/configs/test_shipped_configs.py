"""Every shipped configuration opens with its question, is valid, and runs, shortened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.config.load import config_from_mapping, read_config
from sim.config.overrides import Override, apply_overrides
from sim.experiment import run
from sim.sweeps.expand import expand

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
NAMES = {
    "quickstart", "block_size_by_memory", "is_prefix_caching_worth_it", "multi_turn_chat", "agents", "rag", "images",
    "lora_tenants", "policy_shootout", "mooncake", "preemption_storm", "hybrid_model",
}  # fmt: skip
WITHOUT_SWEEP = {"quickstart", "mooncake"}
LIMIT = 25
TRACE_ROW = '{"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}\n'


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "mooncake.jsonl"
    path.write_text(TRACE_ROW * 30)
    return path


def shortened(data: dict[str, Any]) -> dict[str, Any]:
    """The configuration with `LIMIT` requests of each workload."""
    keys: list[tuple[str | int, ...]] = [("workload",)] if "workload" in data else []
    keys += [("workloads", i) for i in range(len(data.get("workloads", [])))]
    return apply_overrides(data, [Override((*path, "limit"), LIMIT, "limit") for path in keys])


def test_there_is_one_per_question() -> None:
    assert {path.stem for path in CONFIGS} == NAMES


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_opens_with_its_question(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    opening = lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
    assert opening
    assert "?" in " ".join(opening)
    loaded = read_config(path)
    assert loaded.data["name"] == path.stem
    assert loaded.data["question"].endswith("?")
    assert ("sweep" in loaded.data) == (path.stem not in WITHOUT_SWEEP)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, trace: Path) -> None:
    loaded = read_config(path, trace=str(trace) if path.stem == "mooncake" else None)
    data = {key: value for key, value in shortened(loaded.data).items() if key != "sweep"}
    summary = run(config_from_mapping(data), out=tmp_path).summary
    assert summary["requests"]["finished"] == summary["requests"]["total"] >= LIMIT
    assert summary["not_finished"] == {}


@pytest.mark.parametrize("path", [p for p in CONFIGS if p.stem not in WITHOUT_SWEEP], ids=lambda path: path.stem)
def test_every_point_of_its_sweep_is_valid_and_the_last_one_runs(path: Path, tmp_path: Path) -> None:
    loaded = read_config(path)
    sweep = expand(loaded)
    assert len(sweep.points) > 1
    assert (sweep.left_out, sweep.same) == (0, 0)
    last = expand(loaded._replace(data=shortened(loaded.data))).points[-1]
    summary = run(last.config, out=tmp_path).summary
    assert summary["requests"]["finished"] == summary["requests"]["total"] >= LIMIT
