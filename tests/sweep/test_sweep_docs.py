"""What the pages on sweeps and Python show is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import sim
from sim.config.errors import Places
from sim.config.load import LoadedConfig, read_config
from sim.sweeps.expand import expand

ROOT = Path(__file__).resolve().parent.parent.parent


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def test_the_sweep_of_the_page_has_the_points_it_says() -> None:
    base = read_config(ROOT / "configs" / "quickstart.yaml").data
    sweep = expand(LoadedConfig(base | yaml.safe_load(blocks("sweeps.md", "yaml")[0]), Places()))
    assert len(sweep.points) + sweep.left_out == 3 * 3 * 2 * 2 * 3
    assert sweep.left_out > 0
    for point in sweep.points:
        assert point.config.engine.block_size * int(point.parameters["memory.num_gpu_blocks"]) <= 128_000
        assert point.parameters["variant"] != "no caching" or point.config.engine.block_size == 16


def test_options_of_the_page_are_those_of_the_command() -> None:
    from sim.cli.sweep import command

    known = {name for parameter in command.params for name in parameter.opts}
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--[a-z][a-z-]*", page)) <= known


def test_the_configuration_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks("python.md", "python")[1].partition("results = ")[0]
    scope: dict[str, Any] = {"sim": sim}
    exec(code, scope)
    results = sim.run(scope["config"], changes={"workload.requests": 5})
    assert results.summary["requests"]["finished"] == 5
    assert results.config["engine"]["block_size"] == 32


def test_calls_of_the_page_exist() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names = set(re.findall(r"\bsim\.([A-Za-z_]+)", page)) - {"errors", "eviction"}
    assert names <= set(sim.__all__)
    assert len(names) > 15
