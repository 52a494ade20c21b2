"""Nested settings and summary figures as flat, readable rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from sim.report.wording import duration, number, percent, size

SHARE_WORDS = ("rate", "share", "fraction", "usage", "ratio", "goodput_share")
RATE_ENDINGS = ("_per_s", "throughput", "_rps", "_goodput")


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names to leaves; lists stay whole, empty mappings vanish."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def is_number(value: Any) -> bool:
    """Whether it is a number that can be shown as one (a truth value is not)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def unit_of(name: str) -> str:
    """What a dotted name says of its unit: 's', 'share', 'ms', '1/s', 'bytes' or ''.

    The nearest part of the name that tells wins: `ttft_s.p99` is seconds.
    """
    for part in reversed(name.split(".")):
        words = part.split("_")
        if part.endswith(RATE_ENDINGS) or "per_s" in part or "per_second" in part:
            return "1/s"
        if part.endswith(("_s", "_seconds")):
            return "s"
        if part.endswith("_ms"):
            return "ms"
        if part.endswith("bytes"):
            return "bytes"
        if any(w in SHARE_WORDS for w in words):
            return "share"
    return ""


def in_words(name: str, value: Any, unit: str | None = None) -> str:
    """A value in its unit: the one given, or the one that its name states.  See `unit_of` for the units."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(in_words(name, v, unit) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {in_words(k, v, unit)}" for k, v in value.items())
    if not is_number(value):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return "–"
    if unit is None:
        unit = unit_of(name)
    if unit in ("s", "ms"):
        return duration(float(value) / (1000 if unit == "ms" else 1))
    if unit == "bytes":
        return size(float(value))
    if unit in ("1/s", "tokens/s"):
        return f"{number(value)} {'tokens/s' if unit == 'tokens/s' else '/s'}"
    if unit == "share" and isinstance(value, float) and 0 <= value <= 1:
        return percent(value, 2)
    return number(value)


class Definitions:
    """What figures mean and their units, from the `definitions` of a summary: dotted name to '[unit] text'.

    A figure without a definition of its own has the one of the group it stands in.
    """

    def __init__(self, summary: Mapping[str, Any]) -> None:
        found = summary.get("definitions")
        self._texts = {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}

    def text(self, name: str) -> str:
        """The definition without the unit; empty when there is none."""
        return re.sub(r"^\[[^\]]*\] ", "", self._raw(name))

    def words(self, name: str, value: Any) -> str:
        """The value in its unit."""
        match = re.match(r"\[([^\]]*)\] ", self._raw(name))
        stated = match[1] if match else None
        if name.endswith((".count", ".total")):
            stated = ""
        return in_words(name, value, stated)

    def _raw(self, name: str) -> str:
        while name not in self._texts and "." in name:
            name = name.rpartition(".")[0]
        return self._texts.get(name, "")


def setting(value: Any) -> str:
    """A setting as it would stand in YAML, in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {setting(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(setting(v) for v in value) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
