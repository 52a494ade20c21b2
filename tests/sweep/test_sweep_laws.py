"""Laws of expansion, over random sweeps; and conditions reach nothing but the configuration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config.errors import Places
from sim.config.load import LoadedConfig, config_hash
from sim.errors import ConfigError
from sim.sweeps.axes import count_points, read_sweep
from sim.sweeps.condition import Condition
from sim.sweeps.expand import expand, flatten

BASE: dict[str, Any] = {
    "name": "tiny",
    "memory": {"num_gpu_blocks": 64},
    "workload": {"kind": "shared_prefix", "requests": 3},
}
AXES: dict[str, list[Any]] = {
    "engine.block_size": [4, 8, 16],
    "memory.num_gpu_blocks": [32, 64, 128],
    "engine.max_num_seqs": [1, 2],
    "workload.requests": [2, 3],
    "timing": [{"kind": "fixed", "step_s": 0.1}, {"kind": "linear", "step_s": 0.2}],
    "workload.arrivals": ["all_at_once", {"poisson": {"rate_per_s": 2}}],
}


@st.composite
def sections(draw: st.DrawFn) -> dict[str, Any]:
    """A `sweep:` whose axes are taken from `AXES`, values maybe repeated."""
    paths = draw(st.permutations(sorted(AXES)))
    cut = draw(st.integers(0, 2))
    grid = {path: draw(st.lists(st.sampled_from(AXES[path]), min_size=1, max_size=3)) for path in paths[:cut]}
    rows = draw(st.integers(1, 3))
    zipped = {
        path: draw(st.lists(st.sampled_from(AXES[path]), min_size=rows, max_size=rows))
        for path in paths[cut : cut + draw(st.integers(0, 2))]
    }
    section: dict[str, Any] = {"grid": grid, "zip": zipped, "seeds": draw(st.integers(1, 3))}
    if draw(st.booleans()):
        path = paths[-1]
        section["variants"] = [
            {"name": f"v{i}", "set": {path: value}} for i, value in enumerate(AXES[path])
        ]  # fmt: skip
    if draw(st.booleans()):
        section["where"] = ["engine.block_size * memory.num_gpu_blocks <= 1024"]
    return section


@settings(deadline=None, max_examples=40)
@given(sections())
def test_points_are_the_combinations(section: dict[str, Any]) -> None:
    loaded = LoadedConfig(BASE | {"sweep": section}, Places())
    try:
        sweep = expand(loaded)
    except ConfigError as error:
        assert "where" in section
        assert "no point is left" in str(error)  # noqa: PT017
        return
    assert len(sweep.points) + sweep.left_out + sweep.same == count_points(read_sweep(loaded)[1])
    assert [point.number for point in sweep.points] == list(range(len(sweep.points)))
    assert len({point.folder for point in sweep.points}) == len(sweep.points)
    variants = {v["name"]: v["set"] for v in section.get("variants", [])}
    for point in sweep.points:
        assert config_hash(point.config).startswith(point.folder)
        assert point.config.sweep is None
        known = flatten(point.config.model_dump(mode="json"))
        changes = {k: v for k, v in point.parameters.items() if k != "variant"}
        changes |= variants.get(point.parameters.get("variant", ""), {})
        for path, value in changes.items():
            for inner, expected in flatten({path: value}).items():
                assert known[inner] == expected or inner == "workload.arrivals"
        if "where" in section:
            assert point.config.engine.block_size * known["memory.num_gpu_blocks"] <= 1024
    again = expand(loaded)
    assert [point.folder for point in again.points] == [point.folder for point in sweep.points]


HOSTILE = [
    "__import__('os').system('true')",
    "engine.__class__.__bases__",
    "(lambda: 1)()",
    "[x for x in workload]",
    "engine.block_size if seed else 1",
    "workload['kind'] == 'a'",
    "f'{seed}'",
    "seed ** 99 ** 99",
    "seed := 3",
    "name * 1000000000 == 'a'",
    "",
    "\0",
    "(" * 500 + "1" + ")" * 500,
    "seed in 3",
    "1 / 0",
    "workload.requests[0] == 1",
    "workload[-1] == 1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_conditions_reach_nothing_else(text: str) -> None:
    section = {"grid": {"engine.block_size": [8, 16]}, "where": [text]}
    with pytest.raises(ConfigError) as caught:
        expand(LoadedConfig(BASE | {"sweep": section}, Places()))
    assert str(caught.value).startswith("sweep.where")


def test_entries_of_lists_have_numbers_in_conditions() -> None:
    known = {"workloads.0.limit": 3}
    assert Condition("workloads[0].limit == 3").holds(known.__getitem__)
    base = {key: value for key, value in BASE.items() if key != "workload"}
    base["workloads"] = [{"kind": "shared_prefix", "name": "a"}, {"kind": "shared_prefix", "name": "b"}]
    section = {"grid": {"workloads.1.limit": [3, 4, 5]}, "where": ["workloads[1].limit != 4"]}
    sweep = expand(LoadedConfig(base | {"sweep": section}, Places()))
    assert [point.parameters["workloads.1.limit"] for point in sweep.points] == [3, 5]
    assert sweep.left_out == 1
