"""From a configuration with ``sweep:`` to its points, each a validated configuration of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from sim.config import ExperimentConfig
from sim.config.errors import ConfigFaults, Places, fault_lines
from sim.config.load import LoadedConfig, config_from_mapping, config_hash
from sim.config.overrides import Override, apply_overrides, parse_override
from sim.config.sweep import SweepConfig
from sim.errors import ConfigError
from sim.sweeps.condition import Condition

_FAULTS_SHOWN = 20
NAMES_DIGITS = 12


class Point(NamedTuple):
    """One point: its number, what it changes (path → value), its configuration and the name of its folder."""

    number: int
    parameters: dict[str, Any]
    config: ExperimentConfig
    folder: str


class Sweep(NamedTuple):
    """All points of a sweep; `left_out` counts those that a condition excluded, `same` repeats of one configuration."""

    name: str
    points: list[Point]
    parameters: list[str]
    fixed: dict[str, Any]
    left_out: int
    same: int


def read_sweep(loaded: LoadedConfig, axes: Iterable[str] = ()) -> tuple[dict[str, Any], SweepConfig]:
    """The base mapping without ``sweep:``, and the sweep with axes of ``--sweep a.b=8,16`` added.

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
    sweep = sweep.model_copy(update={"grid": grid})
    if not (sweep.grid or sweep.zip or sweep.variants or sweep.seeds):
        raise ConfigError("sweep: no axis to sweep; give sweep: {grid: {PATH: [VALUES]}} or --sweep PATH=V1,V2")
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


def expand(loaded: LoadedConfig, axes: Iterable[str] = ()) -> Sweep:
    """Make and validate every point.

    Raises:
        ConfigError: one line for every fault of every point (the first 20), before anything runs.
    """
    base, section = read_sweep(loaded, axes)
    conditions = [Condition(text) for text in section.where]
    points: list[Point] = []
    faults: dict[str, None] = {}
    seen: set[str] = set()
    left_out = same = 0
    for parameters, changes in _combinations(section, base):
        try:
            data = apply_overrides(base, [_override(path, value) for path, value in changes.items()])
            config = config_from_mapping(data, _places(loaded.places, changes))
        except ConfigFaults as error:
            faults.update(dict.fromkeys(error.lines))
            continue
        except ConfigError as error:
            faults[str(error)] = None
            continue
        dumped = config.model_dump(mode="json")
        if not all(condition.holds(lambda path, known=dumped: _lookup(known, path)) for condition in conditions):  # type: ignore[misc]
            left_out += 1
            continue
        folder = config_hash(config)[:NAMES_DIGITS]
        if folder in seen:
            same += 1
            continue
        seen.add(folder)
        points.append(Point(len(points), parameters, config, folder))
    if faults:
        lines = list(faults)
        if len(lines) > _FAULTS_SHOWN:
            lines = [*lines[:_FAULTS_SHOWN], f"and {len(lines) - _FAULTS_SHOWN} more faults of points"]
        raise ConfigFaults(lines)
    if not points:
        raise ConfigError(f"sweep.where: no point is left of {left_out}: the conditions leave all of them out")
    names = list(dict.fromkeys(name for point in points for name in point.parameters))
    return Sweep(points[0].config.name, points, names, _fixed(base, names), left_out, same)


def _combinations(sweep: SweepConfig, base: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What each point shows as its parameters, and what it changes."""
    grid = [[(path, value) for value in values] for path, values in sweep.grid.items()]
    zipped = [tuple(row) for row in zip(*sweep.zip.values(), strict=True)] or [()]
    variants: list[Any] = list(sweep.variants) if sweep.variants else [None]
    first = base.get("seed", 0)
    if isinstance(sweep.seeds, int):
        seeds: list[Any] = [first + k for k in range(sweep.seeds)] if isinstance(first, int) else [first]
    else:
        seeds = list(sweep.seeds) if sweep.seeds else [None]
    for variant, row, combination, seed in itertools.product(variants, zipped, itertools.product(*grid), seeds):
        axes = dict(zip(sweep.zip, row, strict=True)) | dict(combination)
        if seed is not None:
            axes["seed"] = seed
        if variant is None:
            yield axes, axes
        else:
            yield {"variant": variant.name} | axes, dict(variant.set) | axes


def _override(path: str, value: Any) -> Override:
    return parse_override(f"{path}=0")._replace(value=value, text=f"{path}={value}")


def _places(places: Places, changes: Mapping[str, Any]) -> Places:
    """Faults of a point name the sweep's value as their place."""
    copy = Places(places.file, places.lines)
    copy.overrides = dict(places.overrides)
    for path, value in changes.items():
        copy.overrides[_override(path, value).path] = f"{places.file}: sweep {path}={value}"
    return copy


def _lookup(data: Any, path: str) -> Any:
    at = data
    for part in path.split("."):
        if isinstance(at, dict) and part in at:
            at = at[part]
        elif isinstance(at, list) and part.isdecimal() and int(part) < len(at):
            at = at[int(part)]
        else:
            raise KeyError(path)
    return at


def _fixed(base: Mapping[str, Any], parameters: Iterable[str]) -> dict[str, Any]:
    """What every point shares: the base's own settings, by path."""
    varied = set(parameters)
    return {path: value for path, value in flatten(base).items() if path not in varied}


def flatten(data: Any, prefix: str = "") -> dict[str, Any]:
    """A nested mapping as dotted paths; lists and empty mappings stay values."""
    if not isinstance(data, Mapping) or not data:
        return {prefix: data} if prefix else {}
    out: dict[str, Any] = {}
    for key, value in data.items():
        out |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return out
