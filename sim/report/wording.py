"""Numbers and durations in the words of a reader."""

from __future__ import annotations

import math


def number(value: float, digits: int = 3) -> str:
    """A number with a thin grouping of thousands and about `digits` significant digits; '–' for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", "−")
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}".replace("-", "−")
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace("-", "−")


def short(value: float) -> str:
    """A number at most five characters long: 12.3k, 4.5M."""
    if value is None or math.isnan(value):
        return "–"
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (1e3 if suffix == "k" else limit)
            return f"{scaled:.3g}{suffix}"
    return number(value)


def percent(share: float, decimals: int = 1) -> str:
    """A share of 1 as per cent."""
    if share is None or math.isnan(share):
        return "–"
    return f"{100 * share:.{decimals}f} %"


def duration(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    if seconds is None or math.isnan(seconds):
        return "–"
    size = abs(seconds)
    if size == 0:
        return "0 s"
    if size < 1e-3:
        return f"{number(seconds * 1e6)} µs"
    if size < 1:
        return f"{number(seconds * 1e3)} ms"
    if size < 180:
        return f"{number(seconds)} s"
    if size < 3 * 3600:
        return f"{number(seconds / 60)} min"
    if size < 3 * 86400:
        return f"{number(seconds / 3600)} h"
    return f"{number(seconds / 86400)} days"


def size(count_bytes: float) -> str:
    """Bytes in binary units."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{number(value)} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes every value")


def plural(count: float, one: str, many: str | None = None) -> str:
    """The count and its noun: '1 block', '2 blocks'."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"
