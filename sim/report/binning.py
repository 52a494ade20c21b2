"""Millions of rows to the few hundred numbers that a figure shows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TIME_BINS = 120


class TimeAxis(NamedTuple):
    """Equal bins of simulated time and the unit in which people read them.

    `edges_s` has one more entry than there are bins; `scale` seconds make one `unit`.
    """

    edges_s: Floats
    unit: str
    scale: float

    @property
    def width_s(self) -> float:
        """Seconds in one bin."""
        return float(self.edges_s[1] - self.edges_s[0])

    @property
    def centers(self) -> Floats:
        """Middle of each bin, in `unit`."""
        return (self.edges_s[:-1] + self.edges_s[1:]) / 2 / self.scale

    @property
    def edges(self) -> Floats:
        """Edges of the bins, in `unit`."""
        return self.edges_s / self.scale

    @property
    def label(self) -> str:
        """The text under the axis."""
        return f"simulated time [{self.unit}]"


def time_unit(span_s: float) -> tuple[str, float]:
    """The unit that gives a span readable numbers, and its seconds."""
    if span_s < 0.2:
        return "ms", 1e-3
    if span_s <= 600:
        return "s", 1.0
    if span_s <= 3 * 3600:
        return "min", 60.0
    if span_s <= 3 * 86400:
        return "h", 3600.0
    return "days", 86400.0


def time_axis(end_s: float, start_s: float = 0.0, bins: int = TIME_BINS) -> TimeAxis:
    """Equal bins from `start_s` to `end_s`; an empty span is given one second so that bins have a width."""
    if not end_s > start_s:
        end_s = start_s + 1.0
    unit, scale = time_unit(end_s - start_s)
    return TimeAxis(np.linspace(start_s, end_s, bins + 1), unit, scale)


def sum_per_bin(axis: TimeAxis, time_s: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Floats:
    """Sum of `weights` (or the number of events) in each bin; events outside go to the outermost bins."""
    time = np.asarray(time_s, dtype=np.float64)
    bins = len(axis.edges_s) - 1
    index = ((time - axis.edges_s[0]) / axis.width_s).astype(np.int64)
    np.clip(index, 0, bins - 1, out=index)
    values = None if weights is None else np.asarray(weights, dtype=np.float64)
    return np.bincount(index, weights=values, minlength=bins).astype(np.float64)


def time_average(axis: TimeAxis, start_s: npt.ArrayLike, duration_s: npt.ArrayLike, value: npt.ArrayLike) -> Floats:
    """Mean over the time in each bin of a quantity that holds `value` during each step and 0 in between.

    Steps are in order of time and don't overlap.
    """
    start = np.asarray(start_s, dtype=np.float64)
    if start.size == 0:
        return np.zeros(len(axis.edges_s) - 1)
    end = start + np.asarray(duration_s, dtype=np.float64)
    area = np.concatenate([[0.0], np.cumsum((end - start) * np.asarray(value, dtype=np.float64))])
    knots = np.empty(2 * start.size)
    knots[0::2], knots[1::2] = start, end
    np.maximum.accumulate(knots, out=knots)  # rounding may let a step begin a hair before the last has ended
    heights = np.empty(2 * start.size)
    heights[0::2], heights[1::2] = area[:-1], area[1:]
    integral = np.interp(axis.edges_s, knots, heights)
    return np.diff(integral) / axis.width_s


def extremes_per_bin(axis: TimeAxis, time_s: npt.ArrayLike, value: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Lowest and highest value in each bin; NaN where a bin has no step.  Times are in order."""
    time = np.asarray(time_s, dtype=np.float64)
    values = np.asarray(value, dtype=np.float64)
    bins = len(axis.edges_s) - 1
    low, high = np.full(bins, np.nan), np.full(bins, np.nan)
    if time.size == 0:
        return low, high
    cuts = np.searchsorted(time, axis.edges_s[:-1], side="left")
    cuts[0] = 0
    filled = np.flatnonzero(np.diff(np.append(cuts, time.size)) > 0)
    low[filled] = np.minimum.reduceat(values, cuts[filled])
    high[filled] = np.maximum.reduceat(values, cuts[filled])
    return low, high


def log_edges(values: Floats, bins: int = 48) -> Floats:
    """Edges for a histogram of positive `values` over equal ratios; at least half a decade wide."""
    low, high = float(values.min()), float(values.max())
    if high < low * 3.2:
        middle = (low * high) ** 0.5
        low, high = middle / 1.8, middle * 1.8
    edges: Floats = np.geomspace(low, high, bins + 1)
    edges[0], edges[-1] = min(edges[0], values.min()), max(edges[-1], values.max())
    return edges


def quantiles(values: Floats, at: tuple[float, ...] = (0.5, 0.9, 0.99)) -> list[float]:
    """Quantiles by linear interpolation; NaN for each when there are no values."""
    if values.size == 0:
        return [float("nan")] * len(at)
    return [float(v) for v in np.quantile(values, at)]


def ratio(part: npt.ArrayLike, whole: npt.ArrayLike) -> Floats:
    """part / whole, NaN where the whole is 0."""
    numerator = np.asarray(part, dtype=np.float64)
    denominator = np.asarray(whole, dtype=np.float64)
    result = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result
