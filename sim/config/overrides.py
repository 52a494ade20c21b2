"""``--set a.b=value`` and the like: change a mapping at dotted paths before it is validated."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

from sim.config.yaml_io import KeyPath, parse_value
from sim.errors import ConfigError


class Override(NamedTuple):
    """One ``path=value``: where it goes, the value, and the text that the user gave."""

    path: KeyPath
    value: Any
    text: str


def parse_override(text: str) -> Override:
    """Parse ``engine.block_size=32`` or ``workloads.0.seed=1``; the value is YAML.

    Raises `ConfigError` when the text has no ``=``, no path, or a value that is no YAML.
    """
    path, separator, value = text.partition("=")
    parts = path.strip().split(".")
    if not separator or not all(part.strip() for part in parts):
        raise ConfigError(f"--set {text}: must be PATH=VALUE with a dotted path, such as engine.block_size=32")
    keys: KeyPath = tuple(int(part) if part.isdecimal() else part.strip() for part in parts)
    return Override(keys, parse_value(value, f"--set {text}"), text)


def apply_overrides(data: dict[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """A copy of `data` with each value set; missing mappings on the way are made.

    Raises `ConfigError` naming the first part of a path that leads through something that is no
    mapping, or beyond the end of a list.
    """
    out = copy.deepcopy(data)
    for override in overrides:
        at: Any = out
        for depth, key in enumerate(override.path):
            shown = ".".join(str(part) for part in override.path[: depth + 1])
            last = depth == len(override.path) - 1
            if isinstance(at, dict):
                name = str(key)
                if last:
                    at[name] = override.value
                else:
                    if at.get(name) is None:
                        at[name] = {}
                    at = at[name]
            elif isinstance(at, list) and isinstance(key, int) and key < len(at):
                if last:
                    at[key] = override.value
                else:
                    at = at[key]
            elif isinstance(at, list):
                raise ConfigError(f"--set {override.text}: {shown}: the list has {len(at)} entries, counted from 0")
            else:
                parent = ".".join(str(part) for part in override.path[:depth])
                raise ConfigError(f"--set {override.text}: {parent} holds {at!r}, not a mapping that could have {key}")
    return out
