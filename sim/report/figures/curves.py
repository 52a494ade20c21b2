"""Hit rate over the capacity of the cache, a line per policy, under the optimum and the infinite cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from sim.report.binning import Floats
from sim.report.picture import NothingToShow, Picture, legend
from sim.report.style import color, ink, muted
from sim.report.wording import number, percent, short

if TYPE_CHECKING:
    from sim.analysis.curves import CurveSet

OPTIMUM = "optimum"


class Line(NamedTuple):
    """One policy: the curve as it is drawn, the capacities asked for, and the knee."""

    policy: str
    x: Floats
    y: Floats
    asked_x: Floats
    asked_y: Floats
    knee: int | None
    enough: int | None


class Curves(NamedTuple):
    """All policies, the optimum first, and the rate of a cache that never evicts."""

    lines: list[Line]
    infinite: float
    share: float


def compute_curves(curves: CurveSet, share: float = 0.9) -> Curves:
    """Lines from a set of curves; `share` of what the infinite cache hits is what counts as enough."""
    if not curves.curves:
        raise NothingToShow("there is no curve")
    first = min(point.capacity_blocks for curve in curves.curves for point in curve.points)
    lines = []
    for curve in sorted(curves.curves, key=lambda c: c.policy != OPTIMUM):
        asked = np.array([(p.capacity_blocks, p.rates.hit_rate) for p in curve.points], dtype=np.float64)
        last = asked[-1, 0]
        dense = np.array([pair for pair in curve.dense if first <= pair[0] <= last], dtype=np.float64).reshape(-1, 2)
        both = np.concatenate([dense, asked])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        enough = next((need.capacity_blocks for need in curve.needs if abs(need.share - share) < 1e-9), None)
        lines.append(
            Line(curve.policy, both[:, 0], both[:, 1], asked[:, 0], asked[:, 1], curve.knee_blocks, enough)
        )  # fmt: skip
    return Curves(lines, curves.infinite.hit_rate, share)


def draw_curves(data: Curves, ax: Axes) -> None:
    """Lines with a point at each capacity asked for; knees as diamonds; the infinite cache as a dashed ceiling."""
    place = 0
    low, high = min(line.x[0] for line in data.lines), max(line.x[-1] for line in data.lines)
    for line in data.lines:
        best = line.policy == OPTIMUM
        shade = ink() if best else color(place)
        place += 0 if best else 1
        ax.plot(line.x, 100 * line.y, color=shade, linewidth=1.3 if best else 1.6, label=line.policy, zorder=3 - best)
        ax.plot(line.asked_x, 100 * line.asked_y, linestyle="none", marker="o", markersize=3, color=shade)
        if line.knee is not None and low <= line.knee <= high:
            height = 100 * float(np.interp(line.knee, line.x, line.y))
            ax.plot(line.knee, height, linestyle="none", marker="D", markersize=5.5, color=shade, zorder=4)
    ax.axhline(100 * data.infinite, color=muted(), linewidth=1, linestyle=(0, (4, 2)))
    ax.text(low, 100 * data.infinite, " infinite cache", va="bottom", fontsize=8.5, color=muted())
    if high / low >= 8:
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    ax.set_ylim(0, max(1e-6, 100 * data.infinite) * (1.25 if len(data.lines) <= 5 else 1.4))
    ax.set_xlabel("capacity of the cache [blocks]; diamonds mark knees")
    ax.set_title("Hit rate over cache capacity [% of blocks]")
    legend(ax, ncols=min(5, len(data.lines)))


def read_curves(data: Curves) -> str:
    """What each policy needs for the share that counts as enough."""
    parts = [f"{line.policy} {number(line.enough)}" for line in data.lines if line.enough is not None]
    start = f"A cache without limit hits {percent(data.infinite)} of the blocks"
    if not parts:
        return f"{start}; no policy reaches {percent(data.share, 0)} of that at the capacities tried."
    lacking = [line.policy for line in data.lines if line.enough is None]
    tail = f"; {', '.join(lacking)} did not reach it" if lacking else ""
    return f"{start}; {percent(data.share, 0)} of that takes, in blocks: {', '.join(parts)}{tail}."


CURVES = Picture("capacity_curves", {}, compute_curves, draw_curves, read_curves, (6.2, 3.7))


def capacity_curves(curves: CurveSet, ax: Axes | None = None, share: float = 0.9) -> Axes:
    """Hit rate over capacity for every policy of `curves`, with the optimum and the infinite cache."""
    return CURVES.plot(curves, ax=ax, share=share)
