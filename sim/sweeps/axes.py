"""The axes of a sweep: from its section and ``--sweep`` to combinations of changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from sim.config.errors import ConfigFaults, Places, fault_lines
from sim.config.load import LoadedConfig
from sim.config.overrides import parse_override
from sim.config.sweep import SweepConfig
from sim.config.yaml_io import KeyPath
from sim.errors import ConfigError

_NOT_SWEPT = {"name": "all points share one results folder", "sweep": "a sweep holds no other"}


class Change(NamedTuple):
    """A path set to a value, and where the sweep says so."""

    path: str
    value: Any
    place: KeyPath


class Combination(NamedTuple):
    """What a point shows as its parameters, and what it changes."""

    parameters: dict[str, Any]
    changes: list[Change]


def read_sweep(loaded: LoadedConfig, axes: Iterable[str] = ()) -> tuple[dict[str, Any], SweepConfig]:
    """The base mapping without ``sweep:``, and the sweep with axes of ``--sweep a.b=8,16`` added.

    An axis given so replaces the one of the file.

    Raises:
        ConfigError: a fault in the section, an axis that cannot be read, or no sweep at all.
    """
    base = {key: value for key, value in loaded.data.items() if key != "sweep"}
    section = loaded.data.get("sweep") or {}
    try:
        sweep = SweepConfig.model_validate(section)
    except ValidationError as error:
        raise ConfigFaults(fault_lines(error, SweepConfig, section, loaded.places, ("sweep",))) from None
    grid = dict(sweep.grid)
    for text in axes:
        path, values = parse_axis(text)
        grid[path] = values
        loaded.places.overrides["sweep", "grid", path] = f"--sweep {path}"
    zipped = {path: values for path, values in sweep.zip.items() if path not in grid or path in sweep.grid}
    sweep = sweep.model_copy(update={"grid": grid, "zip": zipped})
    if not (sweep.grid or sweep.zip or sweep.variants or sweep.seeds):
        raise ConfigError("sweep: no axis to sweep; give sweep: {grid: {PATH: [VALUES]}} or --sweep PATH=V1,V2")
    if lines := _contradictions(sweep, loaded.places):
        raise ConfigFaults(lines)
    return base, sweep


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """``engine.block_size=8,16,32`` as a path and its values; commas inside brackets or quotes stay."""
    path, separator, values = text.partition("=")
    if not separator or not values.strip():
        raise ConfigError(f"--sweep {text}: must be PATH=V1,V2,… such as engine.block_size=8,16,32")
    parsed = parse_override(f"{path}=[{values}]").value
    if not isinstance(parsed, list) or not parsed:
        raise ConfigError(f"--sweep {text}: must be PATH=V1,V2,… such as engine.block_size=8,16,32")
    return path.strip(), parsed


def _contradictions(sweep: SweepConfig, places: Places) -> list[str]:
    """Paths that are none, that must not be swept, or that two axes set."""
    where: list[tuple[str, KeyPath]] = [(path, ("sweep", "grid", path)) for path in sweep.grid]
    where += [(path, ("sweep", "zip", path)) for path in sweep.zip]
    if sweep.seeds is not None:
        where.append(("seed", ("sweep", "seeds")))
    sets = [
        [(path, ("sweep", "variants", i, "set", path)) for path in v.set] for i, v in enumerate(sweep.variants or [])
    ]
    lines: list[str] = []
    for path, place in [*where, *(pair for pairs in sets for pair in pairs)]:
        if not all(part.strip() for part in path.split(".")):
            lines.append(places.fault(place, "is no path; write it like engine.block_size"))
        if (root := path.partition(".")[0]) in _NOT_SWEPT:
            lines.append(places.fault(place, f"cannot be swept: {_NOT_SWEPT[root]}"))
    for axes in [where, *([*where, *pairs] for pairs in sets)]:
        for (one, _), (other, place) in itertools.combinations(axes, 2):
            if f"{other}.".startswith(f"{one}.") or f"{one}.".startswith(f"{other}."):
                known = one if one == other else f"{one} and {other}"
                lines.append(places.fault(place, f"two axes of the sweep set {known}; one of them must go"))
    return list(dict.fromkeys(lines))


def count_points(sweep: SweepConfig) -> int:
    """How many combinations there are, before any condition."""
    zipped = len(next(iter(sweep.zip.values()), [None]))
    seeds = sweep.seeds if isinstance(sweep.seeds, int) else len(sweep.seeds or [0])
    return (
        math.prod(len(values) for values in sweep.grid.values())
        * zipped
        * (len(sweep.variants) if sweep.variants else 1)
        * seeds
    )


def combinations(sweep: SweepConfig, base: Mapping[str, Any]) -> Iterator[Combination]:
    """All combinations: variants outermost, then zip, then the grid in its order, seeds innermost."""
    grid = [
        [Change(path, value, ("sweep", "grid", path, i)) for i, value in enumerate(values)]
        for path, values in sweep.grid.items()
    ]
    rows = [
        [Change(path, values[i], ("sweep", "zip", path, i)) for path, values in sweep.zip.items()]
        for i in range(len(next(iter(sweep.zip.values()), [None])))
    ]
    seeds = [[Change("seed", seed, ("sweep", "seeds"))] for seed in _seeds(sweep, base)] or [[]]
    variants: list[Any] = list(enumerate(sweep.variants)) if sweep.variants else [None]
    for variant, row, picked, seed in itertools.product(variants, rows, itertools.product(*grid), seeds):
        axes = [*row, *picked, *seed]
        shown = {change.path: change.value for change in axes}
        if variant is None:
            yield Combination(shown, axes)
            continue
        number, (name, changes) = variant[0], (variant[1].name, variant[1].set)
        own = [Change(path, value, ("sweep", "variants", number, "set", path)) for path, value in changes.items()]
        yield Combination({"variant": name} | shown, [*own, *axes])


def _seeds(sweep: SweepConfig, base: Mapping[str, Any]) -> list[Any]:
    """The seeds; a number of them counts up from the configuration's own."""
    if not isinstance(sweep.seeds, int):
        return list(sweep.seeds or [])
    first = base.get("seed", 0)
    return [first + k for k in range(sweep.seeds)] if isinstance(first, int) else [first]
