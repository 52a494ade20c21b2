"""Points of a sweep: combinations, conditions, faults before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config.errors import Places
from sim.config.load import LoadedConfig
from sim.errors import ConfigError
from sim.sweeps.axes import count_points, parse_axis, read_sweep
from sim.sweeps.condition import Condition
from sim.sweeps.expand import expand, flatten

BASE: dict[str, Any] = {
    "name": "tiny",
    "memory": {"num_gpu_blocks": 64},
    "workload": {"kind": "shared_prefix", "requests": 3},
}


def loaded(sweep: dict[str, Any] | None = None, **more: Any) -> LoadedConfig:
    """The base configuration with a sweep."""
    return LoadedConfig(BASE | more | ({"sweep": sweep} if sweep is not None else {}), Places("tiny.yaml"))


def test_grid_is_every_combination() -> None:
    sweep = expand(loaded({"grid": {"engine.block_size": [8, 16], "memory.num_gpu_blocks": [32, 64, 128]}}))
    seen = [(p.config.engine.block_size, p.parameters["memory.num_gpu_blocks"]) for p in sweep.points]
    assert seen == [(size, blocks) for size in (8, 16) for blocks in (32, 64, 128)]
    assert sweep.parameters == ["engine.block_size", "memory.num_gpu_blocks"]
    assert len({point.folder for point in sweep.points}) == 6


def test_zip_goes_together() -> None:
    sweep = expand(loaded({"zip": {"engine.block_size": [8, 16], "memory.num_gpu_blocks": [128, 64]}}))
    assert [tuple(point.parameters.values()) for point in sweep.points] == [(8, 128), (16, 64)]


def test_seeds_and_variants_multiply() -> None:
    variants = [{"name": "a", "set": {"engine.max_num_seqs": 4}}, {"name": "b"}]
    sweep = expand(loaded({"seeds": 3, "variants": variants}, seed=5))
    assert [(p.parameters["variant"], p.config.seed) for p in sweep.points] == [(v, s) for v in "ab" for s in (5, 6, 7)]
    assert [point.config.engine.max_num_seqs for point in sweep.points] == [4, 4, 4, 256, 256, 256]


def test_conditions_leave_points_out_and_repeats_run_once() -> None:
    section = {
        "grid": {"engine.block_size": [8, 16, 16], "memory.num_gpu_blocks": [32, 64]},
        "where": ["engine.block_size * memory.num_gpu_blocks <= 512"],
    }
    sweep = expand(loaded(section))
    assert [tuple(point.parameters.values()) for point in sweep.points] == [(8, 32), (8, 64), (16, 32)]
    assert (sweep.left_out, sweep.same) == (2, 1)


def test_axes_of_the_command_line_replace_those_of_the_file() -> None:
    sweep = expand(loaded({"grid": {"engine.block_size": [8]}}), ["engine.block_size=4,32"])
    assert [point.config.engine.block_size for point in sweep.points] == [4, 32]
    assert parse_axis("a.b=[1, 2],x") == ("a.b", [[1, 2], "x"])


def test_a_changed_point_has_another_folder() -> None:
    first = expand(loaded({"grid": {"engine.block_size": [8, 16]}}))
    second = expand(loaded({"grid": {"engine.block_size": [8, 32]}}))
    assert first.points[0].folder == second.points[0].folder
    assert first.points[1].folder != second.points[1].folder


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"grid": {"engine.block_sise": [8]}}, "engine.block_sise"),
        ({"grid": {"engine.block_size": []}}, "sweep.grid.engine.block_size"),
        ({"grid": {"engine.block_size": [0, 8]}}, "engine.block_size"),
        ({"gird": {}}, "sweep.gird"),
        ({"zip": {"engine.block_size": [8, 16], "seed": [1]}}, "zip needs lists of one length"),
        ({"grid": {"seed": [1]}, "zip": {"seed": [1]}}, "once"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "two variants are named a"),
        ({"seeds": 0}, "sweep.seeds"),
        ({"grid": {"name.x": [1]}}, "cannot be swept"),
        ({"grid": {"engine.block_size": [8]}, "where": ["engine.nothing > 1"]}, "engine.nothing is no value"),
        ({"grid": {"engine.block_size": [8]}, "where": ["engine.block_size > 8"]}, "no point is left"),
        ({"grid": {"engine.block_size": [8]}, "where": ["open('x')"]}, "Call is not allowed"),
        ({"grid": {"engine.block_size": [8]}, "where": ["1 +"]}, "write it like"),
        ({"grid": {"engine.block_size": [8]}, "where": ["name > 1"]}, "not supported"),
    ],
)
def test_faults_are_named_before_anything_runs(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(loaded(section))
    assert words in str(caught.value)


def test_no_axis_is_a_fault() -> None:
    with pytest.raises(ConfigError, match="no axis to sweep"):
        expand(loaded())
    with pytest.raises(ConfigError, match="must be PATH=V1,V2"):
        expand(loaded(), ["engine.block_size"])


def test_a_million_points_are_counted_without_being_made() -> None:
    section = {"grid": {"engine.block_size": list(range(1, 1001))}, "seeds": 1000}
    assert count_points(read_sweep(loaded(section))[1]) == 1_000_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b + 1 == 4", True),
        ("a.b in [1, 2]", False),
        ("not (a.b < 3 and x == 'y')", True),
        ("1 < a.b <= 3", True),
        ("a.b // 2 == 1 or false", True),
        ("-a.b == -3", True),
        ("n == null", True),
    ],
)
def test_condition_values(text: str, value: bool) -> None:
    known = {"a.b": 3, "x": "z", "n": None}
    assert Condition(text).holds(known.__getitem__) is value


def test_flatten_keeps_lists_and_empty_mappings() -> None:
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}
