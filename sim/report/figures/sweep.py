"""Figures of a sweep: heat maps, lines with bands over seeds, and hit rate against memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import FuncFormatter, NullFormatter

from sim.report.binning import Floats
from sim.report.picture import NothingToShow, Picture, headroom, legend
from sim.report.style import BLUE, GREY, RED, color, ink, muted
from sim.report.sweep_data import (
    Metric,
    SweepPoints,
    memory_text,
    numbers,
    ordered,
    pareto,
    short_name,
    value_text,
)
from sim.report.values import unit_of
from sim.report.wording import duration, percent, short, size

if TYPE_CHECKING:
    import pandas as pd

MOST_CELLS_WITH_TEXT = 80
MOST_LINES = 8


def metric_text(metric: Metric, value: float) -> str:
    """A value of a metric, short enough for a cell."""
    if np.isnan(value):
        return "–"
    unit = unit_of(metric.columns[0])
    if metric.key == "hit_rate" or (unit == "share" and 0 <= value <= 1):
        return percent(value)
    return duration(value) if unit == "s" else short(value)


def metric_axis(metric: Metric) -> str:
    """Name and unit of a metric."""
    unit = unit_of(metric.columns[0])
    if metric.key == "hit_rate" or unit == "share":
        return f"{metric.label} [%]"
    return f"{metric.label} [{unit if unit in ('s', 'ms', '1/s') else 'count'}]"


# --- heat map -------------------------------------------------------------------------------------


class Heat(NamedTuple):
    """A metric over two parameters, averaged over everything else; NaN where there is no point."""

    metric: Metric
    across: str
    up: str
    x: list[Any]
    y: list[Any]
    cells: Floats
    averaged: tuple[str, ...]


def heat_axes(sweep: SweepPoints) -> tuple[str, str]:
    """Which parameters make the axes (across, up): the budget across, the block size up, else what has most values."""
    if len(sweep.parameters) < 2:
        raise NothingToShow("fewer than two parameters vary")
    by_count = sorted(sweep.parameters, key=lambda p: -sweep.points[p].astype(str).nunique())
    across = sweep.budget or by_count[0]
    rest = [p for p in by_count if p != across]
    preferred = [p for p in rest if p.endswith("block_size")]
    return across, (preferred or rest)[0]


def compute_heat(sweep: SweepPoints, key: str = "hit_rate", axes: tuple[str, str] | None = None) -> Heat:
    """The mean of a metric over the seeds and over the parameters that are not on the axes."""
    metric = sweep.metrics.get(key)
    if metric is None:
        raise NothingToShow(f"the points have no {key.replace('_', ' ')}")
    across, up = axes or heat_axes(sweep)
    x, y = ordered(sweep.points[across]), ordered(sweep.points[up])
    column = sweep.points[across].map({v: i for i, v in enumerate(x)}).to_numpy()
    row = sweep.points[up].map({v: i for i, v in enumerate(y)}).to_numpy()
    values = sweep.values(metric)
    known = ~np.isnan(values)
    flat = (row * len(x) + column)[known].astype(np.int64)
    total = np.bincount(flat, weights=values[known], minlength=len(x) * len(y))
    count = np.bincount(flat, minlength=len(x) * len(y))
    if not count.any():
        raise NothingToShow(f"no point has a {metric.label}")
    cells = np.full(len(x) * len(y), np.nan)
    np.divide(total, count, out=cells, where=count > 0)
    averaged = tuple(p for p in sweep.parameters if p not in (across, up))
    return Heat(metric, across, up, x, y, cells.reshape(len(y), len(x)), averaged)


def draw_heat(data: Heat, ax: Axes) -> None:
    """Coloured cells with their values; counts that span decades on a logarithmic scale."""
    known = data.cells[~np.isnan(data.cells)]
    low, high = float(known.min()), float(known.max())
    norm: Normalize = (
        LogNorm(low, high) if low > 0 and high / low > 100 else Normalize(low, high if high > low else low + 1)
    )
    shades = mpl.colormaps[mpl.rcParams["image.cmap"]]
    shades = shades if data.metric.better == "high" else shades.reversed()  # brighter is better
    mesh = ax.pcolormesh(data.cells, norm=norm, cmap=shades, edgecolors=mpl.rcParams["axes.facecolor"], linewidth=1.5)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set_xticks(np.arange(len(data.x)) + 0.5, [axis_value(data.across, v) for v in data.x])
    ax.set_yticks(np.arange(len(data.y)) + 0.5, [axis_value(data.up, v) for v in data.y])
    if len(data.x) > 6:
        ax.tick_params(axis="x", labelrotation=35)
    ax.set_xlabel(axis_label(data.across))
    ax.set_ylabel(axis_label(data.up))
    ax.set_title(heat_title(data))
    if data.cells.size > MOST_CELLS_WITH_TEXT:
        bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: metric_text(data.metric, v)))
        return
    small = 8.5 if len(data.x) <= 6 else 7
    for (i, j), value in np.ndenumerate(data.cells):
        if not np.isnan(value):
            red, green, blue, _ = mesh.cmap(norm(value))
            bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
            ax.text(
                j + 0.5, i + 0.5, metric_text(data.metric, float(value)), ha="center", va="center", fontsize=small,
                color="#12181f" if bright else "#ffffff",
            )  # fmt: skip


def heat_title(data: Heat) -> str:
    """What the cells show."""
    unit = metric_axis(data.metric)
    return f"{unit[0].upper()}{unit[1:]} by {short_name(data.up)} and {short_name(data.across)}"


def read_heat(data: Heat) -> str:
    """Where it is best and worst, and what was averaged over."""
    best = np.nanargmax(data.cells) if data.metric.better == "high" else np.nanargmin(data.cells)
    worst = np.nanargmin(data.cells) if data.metric.better == "high" else np.nanargmax(data.cells)

    def place(index: int) -> str:
        i, j = divmod(int(index), len(data.x))
        value = metric_text(data.metric, float(data.cells[i, j]))
        up, across = value_text(data.up, data.y[i]), value_text(data.across, data.x[j])
        return f"{value} at {short_name(data.up)} {up} and {short_name(data.across)} {across}"

    tail = f" Cells are means over {', '.join(short_name(p) for p in data.averaged)}." if data.averaged else ""
    label = data.metric.label
    if data.cells.flat[best] == data.cells.flat[worst]:
        return (
            f"Nothing changes the {label}: {metric_text(data.metric, float(data.cells.flat[best]))} everywhere.{tail}"
        )
    return f"Best for {label}: {place(int(best))}; worst: {place(int(worst))}. Brighter is better.{tail}"


def axis_value(path: str, value: Any) -> str:
    """A parameter's value, short."""
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        return size(float(value)) if unit_of(path) == "bytes" else short(float(value))
    return str(value)


def axis_label(path: str) -> str:
    """A parameter's name and unit."""
    name = short_name(path)
    if path.endswith("block_size"):
        return f"{name} [tokens]"
    if "blocks" in path:
        return f"{name} [blocks]"
    return f"{name}"


# --- lines ----------------------------------------------------------------------------------------


class Lines(NamedTuple):
    """A metric over one parameter, a line per value of another; the band goes from the lowest to the highest."""

    metric: Metric
    across: str
    by: str | None
    x: Floats
    ticks: list[str]
    labels: list[str]
    mean: Floats
    low: Floats
    high: Floats
    seeds: int
    averaged: tuple[str, ...]
    dropped: int


def compute_lines(sweep: SweepPoints, key: str = "hit_rate", across: str | None = None, by: str | None = None) -> Lines:
    """Mean, lowest and highest over seeds (and over what is on neither axis)."""
    metric = sweep.metrics.get(key)
    if metric is None:
        raise NothingToShow(f"the points have no {key.replace('_', ' ')}")
    if not sweep.parameters:
        raise NothingToShow("no parameter varies")
    table = sweep.points
    if across is None:
        across = heat_axes(sweep)[0] if len(sweep.parameters) > 1 else sweep.parameters[0]
    if by is None and len(sweep.parameters) > 1:
        by = next((p for p in sweep.parameters if p.endswith("policy") and p != across), None)
        by = by or next(p for p in (heat_axes(sweep)[1], *sweep.parameters) if p != across)
    x_values = ordered(table[across])
    series = ordered(table[by]) if by else [None]
    dropped = max(0, len(series) - MOST_LINES)
    series = series[:MOST_LINES]
    values = sweep.values(metric)
    shape = (len(series), len(x_values))
    mean, low, high = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    at_x = {v: (table[across] == v).to_numpy() for v in x_values}
    for i, name in enumerate(series):
        chosen = (table[by] == name).to_numpy() if by else np.ones(len(table), dtype=bool)
        for j, v in enumerate(x_values):
            cell = values[chosen & at_x[v]]
            cell = cell[~np.isnan(cell)]
            if cell.size:
                mean[i, j], low[i, j], high[i, j] = cell.mean(), cell.min(), cell.max()
    if np.isnan(mean).all():
        raise NothingToShow(f"no point has a {metric.label}")
    numeric = numbers(table[across].drop_duplicates())
    spaced = np.array([float(n) for n in sorted(numeric)]) if not np.isnan(numeric).any() else np.arange(len(x_values))
    return Lines(
        metric, across, by, spaced.astype(np.float64), [axis_value(across, v) for v in x_values],
        [axis_value(by, s) if by else "" for s in series], mean, low, high, sweep.seeds,
        tuple(p for p in sweep.parameters if p not in (across, by)), dropped,
    )  # fmt: skip


def draw_lines(data: Lines, ax: Axes) -> None:
    """Lines with points; a logarithmic axis across when the values span a decade."""
    scale = 100.0 if data.metric.key == "hit_rate" else 1.0
    for i, label in enumerate(data.labels):
        shade = color(i)
        ax.fill_between(data.x, scale * data.low[i], scale * data.high[i], color=shade, alpha=0.18, linewidth=0)
        ax.plot(data.x, scale * data.mean[i], color=shade, marker="o", markersize=3.5, label=label or None)
    if data.x.size > 1 and data.x.min() > 0 and data.x.max() / data.x.min() >= 8:
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
    step = max(1, -(-data.x.size // 7))
    ax.set_xticks(data.x[::step], data.ticks[::step], minor=False)
    ax.set_xlabel(axis_label(data.across))
    unit = metric_axis(data.metric)
    ax.set_title(f"{unit[0].upper()}{unit[1:]} over {short_name(data.across)}")
    if scale == 1.0:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: short(v)))
    headroom(ax, 0.2 if data.by else 0.05)
    if data.by:
        legend(ax, title=None, ncols=min(len(data.labels), 5))
        ax.text(
            1, 1.0, short_name(data.by), transform=ax.transAxes, ha="right", va="bottom", fontsize=8.5, color=muted()
        )  # fmt: skip


def read_lines(data: Lines) -> str:
    """From where to where the best line goes, and what the bands are."""
    order = np.nanmean(data.mean, axis=1)
    best = int(np.nanargmax(order) if data.metric.better == "high" else np.nanargmin(order))
    known = np.flatnonzero(~np.isnan(data.mean[best]))
    start, end = (metric_text(data.metric, float(data.mean[best, k])) for k in (known[0], known[-1]))
    who = f"With {short_name(data.by)} {data.labels[best]}, the best on average, the" if data.by else "The"
    over = [f"{data.seeds} seeds"] if data.seeds > 1 else []
    over += [short_name(p) for p in data.averaged]
    bands = f" Lines are means and bands span lowest to highest over {' and '.join(over)}." if over else ""
    more = f" {data.dropped} more values of {short_name(data.by or '')} are not drawn." if data.dropped else ""
    course = f"goes from {start} to {end}" if start != end else f"stays at {start}"
    span = f"{short_name(data.across)} {data.ticks[known[0]]} to {data.ticks[known[-1]]}"
    return f"{who} {data.metric.label} {course} over {span}.{bands}{more}"


# --- Pareto ---------------------------------------------------------------------------------------


class Front(NamedTuple):
    """Hit rate against memory of every point, the front that no point beats, and the budget that is enough."""

    memory: Floats
    unit: str
    rate: Floats
    front: np.ndarray
    enough: int
    share: float


def compute_front(sweep: SweepPoints, share: float = 0.9) -> Front:
    """`share` of the best hit rate marks the smallest budget that keeps it; figures are means over seeds."""
    sweep = sweep.means
    memory, metric = sweep.memory(), sweep.metrics.get("hit_rate")
    if metric is None or memory is None:
        raise NothingToShow("the points don't tell hit rate and size of the cache")
    amount, unit = memory
    rate = sweep.values(metric)
    front = pareto(amount, rate)
    if front.size == 0 or np.unique(amount[~np.isnan(amount)]).size < 2:
        raise NothingToShow("all points have the same size of cache")
    enough = int(front[np.flatnonzero(rate[front] >= share * rate[front].max())[0]])
    return Front(amount, unit, rate, front, enough, share)


def draw_front(data: Front, ax: Axes) -> None:
    """All points, the front as a staircase, the chosen budget circled."""
    ax.plot(data.memory, 100 * data.rate, linestyle="none", marker="o", markersize=4, color=color(GREY), alpha=0.6)
    x, y = data.memory[data.front], 100 * data.rate[data.front]
    ax.step(x, y, where="post", color=color(BLUE), label="no point has more for less")
    ax.plot(x, y, linestyle="none", marker="o", markersize=4.5, color=color(BLUE))
    ax.plot(
        data.memory[data.enough], 100 * data.rate[data.enough], linestyle="none", marker="o", markersize=11,
        markerfacecolor="none", markeredgecolor=color(RED), markeredgewidth=1.6,
        label=f"smallest with {percent(data.share, 0)} of the best",
    )  # fmt: skip
    ax.axhline(100 * data.share * data.rate[data.front].max(), color=ink(), linewidth=0.9, linestyle=(0, (3, 2)))
    known = data.memory[~np.isnan(data.memory)]
    if known.min() > 0 and known.max() / known.min() >= 8:
        ax.set_xscale("log")
    as_text = size if data.unit == "bytes" else short
    ticks = np.unique(known)
    ticks = ticks[:: -(-ticks.size // 7)]
    ax.set_xticks(ticks, [as_text(float(t)) for t in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("size of the KV cache" + (" [tokens]" if data.unit == "tokens" else ""))
    ax.set_title("Hit rate against memory [% of prompt tokens]")
    headroom(ax, 0.18)
    legend(ax)


def read_front(data: Front) -> str:
    """The budget that is enough."""
    best = float(data.rate[data.front].max())
    return (
        f"The smallest budget that keeps {percent(data.share, 0)} of the best hit rate ({percent(best)}) "
        f"is {memory_text(float(data.memory[data.enough]), data.unit)}, with {percent(float(data.rate[data.enough]))}."
    )


PARETO = Picture("hit_rate_against_memory", {}, compute_front, draw_front, read_front)
HEAT = Picture("heat_map", {}, compute_heat, draw_heat, read_heat)
LINES = Picture("lines", {}, compute_lines, draw_lines, read_lines)


def heat_map(
    points: pd.DataFrame | SweepPoints, metric: str = "hit_rate", ax: Axes | None = None,
    axes: tuple[str, str] | None = None,
) -> Axes:  # fmt: skip
    """A metric over two parameters: 'hit_rate', 'evictions', 'preemptions' or 'ttft_p99'."""
    return HEAT.plot(_sweep(points), ax=ax, key=metric, axes=axes)


def lines(
    points: pd.DataFrame | SweepPoints, metric: str = "hit_rate", across: str | None = None, by: str | None = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """A metric over one parameter, a line for each value of another, with bands over seeds."""
    return LINES.plot(_sweep(points), ax=ax, key=metric, across=across, by=by)


def hit_rate_against_memory(points: pd.DataFrame | SweepPoints, ax: Axes | None = None, share: float = 0.9) -> Axes:
    """Hit rate against the size of the cache, with the front and the smallest budget that keeps `share` of the best."""
    return PARETO.plot(_sweep(points), ax=ax, share=share)


def _sweep(points: pd.DataFrame | SweepPoints) -> SweepPoints:
    return points if isinstance(points, SweepPoints) else SweepPoints.from_table(points)
