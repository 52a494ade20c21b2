"""From a configuration with ``sweep:`` to its points, each a validated configuration of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sim.config import ExperimentConfig
from sim.config.errors import ConfigFaults, Places, nearest
from sim.config.load import LoadedConfig, config_from_mapping, config_hash
from sim.config.overrides import Override, apply_overrides
from sim.config.yaml_io import KeyPath
from sim.errors import ConfigError
from sim.sweeps.axes import Change, Combination, combinations, count_points, read_sweep
from sim.sweeps.condition import Condition

_FAULTS_SHOWN = 20
NAME_DIGITS = 12


class Point(NamedTuple):
    """One point: its number, its parameters (path → value), its configuration and the name of its folder."""

    number: int
    parameters: dict[str, Any]
    config: ExperimentConfig
    folder: str

    @property
    def title(self) -> str:
        """The parameters in one line."""
        return ", ".join(f"{path}={value}" for path, value in self.parameters.items())


class Sweep(NamedTuple):
    """All points of a sweep; `left_out` counts those that a condition excluded, `same` repeats of one configuration."""

    name: str
    points: list[Point]
    parameters: list[str]
    fixed: dict[str, Any]
    left_out: int
    same: int


def expand(loaded: LoadedConfig, axes: Iterable[str] = (), *, most_points: int | None = None) -> Sweep:
    """Make and validate every point.

    Args:
        loaded: the configuration, not yet validated.
        axes: further axes, texts as after ``--sweep``.
        most_points: refuse a sweep with more combinations than this.

    Raises:
        ConfigError: one line for every fault of every point (the first 20), before anything runs.
    """
    base, section = read_sweep(loaded, axes)
    if most_points is not None and (count := count_points(section)) > most_points:
        raise ConfigError(f"sweep: {count:,} points are more than the {most_points:,} that were asked for")
    conditions = [Condition(text) for text in section.where]
    points: list[Point] = []
    faults = _Faults(loaded.places)
    seen: set[str] = set()
    left_out = same = 0
    for combination in combinations(section, base):
        config = faults.checked(base, combination)
        if config is None:
            continue
        if conditions:
            known = config.model_dump(mode="json") | combination.parameters
            if not all(condition.holds(lambda path, known=known: _lookup(known, path)) for condition in conditions):  # type: ignore[misc]
                left_out += 1
                continue
        folder = config_hash(config)[:NAME_DIGITS]
        if folder in seen:
            same += 1
            continue
        seen.add(folder)
        points.append(Point(len(points), combination.parameters, config, folder))
    faults.raise_if_any()
    if not points:
        raise ConfigError(f"sweep.where: no point is left of {left_out}: the conditions leave all of them out")
    names = list(dict.fromkeys(name for point in points for name in point.parameters))
    return Sweep(points[0].config.name, points, names, _fixed(base, names), left_out, same)


def first_point(loaded: LoadedConfig, axes: Iterable[str] = ()) -> Point:
    """The first combination alone, without looking at the others.  Raises `ConfigError` for its faults."""
    base, section = read_sweep(loaded, axes)
    faults = _Faults(loaded.places)
    combination = next(combinations(section, base))
    config = faults.checked(base, combination)
    faults.raise_if_any()
    assert config is not None
    return Point(0, combination.parameters, config, config_hash(config)[:NAME_DIGITS])


class _Faults:
    """The faults of all points: one that stands in the sweep is said once, others with their first point."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lines: dict[str, tuple[str, int]] = {}

    def checked(self, base: dict[str, Any], combination: Combination) -> ExperimentConfig | None:
        """The configuration of a point, or None when it has faults."""
        places, own = self._point_places(combination.changes)
        for change in combination.changes:
            try:
                base = apply_overrides(base, [_override(change)])
            except ConfigError as error:
                self._add(self._places.fault(change.place, str(error).partition(": ")[2]), "")
                return None
        try:
            return config_from_mapping(base, places)
        except ConfigFaults as error:
            for line in error.lines:
                elsewhere = not line.startswith(own)
                self._add(line, ", ".join(f"{k}={v}" for k, v in combination.parameters.items()) if elsewhere else "")
        return None

    def _add(self, line: str, point: str) -> None:
        first, times = self._lines.get(line, (point, 0))
        self._lines[line] = (first, times + 1)

    def _point_places(self, changes: list[Change]) -> tuple[Places, tuple[str, ...]]:
        """Places in which a changed value stands where the sweep gives it."""
        places = Places(self._places.file, self._places.lines)
        places.overrides = dict(self._places.overrides)
        for change in changes:
            where = self._places.fault(change.place, "").partition(": ")[0]
            if not self._places.file:
                where = where if where.startswith("--sweep") else "sweep"
            elif not where.startswith("--sweep"):
                where = f"{where}: sweep"
            places.overrides[_keys(change.path)] = where
        return places, tuple(places.overrides[_keys(change.path)] for change in changes)

    def raise_if_any(self) -> None:
        """Raise `ConfigFaults` with all of them."""
        if not self._lines:
            return
        lines = []
        for line, (point, times) in self._lines.items():
            more = f", and {times - 1} more points" if times > 1 else ""
            lines.append(f"{line} (point {point}{more})" if point else line)
        if len(lines) > _FAULTS_SHOWN:
            lines = [*lines[:_FAULTS_SHOWN], f"and {len(lines) - _FAULTS_SHOWN} more faults of points"]
        raise ConfigFaults(lines)


def _keys(path: str) -> KeyPath:
    return tuple(int(part) if part.isdecimal() else part.strip() for part in path.split("."))


def _override(change: Change) -> Override:
    return Override(_keys(change.path), change.value, change.path)


def _lookup(known: Mapping[str, Any], path: str) -> Any:
    """The value at a path; `KeyError` says what would be right."""
    at: Any = known
    for part in [path] if path in known else path.split("."):
        if isinstance(at, Mapping) and part in at:
            at = at[part]
        elif isinstance(at, list) and part.isdecimal() and int(part) < len(at):
            at = at[int(part)]
        else:
            break
    else:
        return at
    near = nearest(path, flatten(known))
    raise KeyError(path, f"did you mean {' or '.join(near)}?" if near else "kvsim schema lists the keys")


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
