"""Several runs on the same axes: time series, and latencies as cumulative shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from sim.report.binning import Floats, TimeAxis, ratio, sum_per_bin, time_average, time_axis
from sim.report.figures.distributions import duration_axis
from sim.report.figures.timeline import CLOCK, frame
from sim.report.picture import NothingToShow, Picture, legend
from sim.report.style import color
from sim.report.wording import duration, number, percent, short

if TYPE_CHECKING:
    import pandas as pd

LABEL_LENGTH = 22
CURVE_POINTS = 300


class Series(NamedTuple):
    """One line per run over a common axis of time, and one number per run that sums it up."""

    time: TimeAxis
    lines: dict[str, Floats]
    totals: dict[str, float]


class Quantity(NamedTuple):
    """A time series that every run has: what it needs of the steps, and how it is computed and named."""

    name: str
    columns: tuple[str, ...]
    values: Callable[[TimeAxis, pd.DataFrame], tuple[Floats, float]]
    title: str
    total: str
    share: bool


def _hit_rate(time: TimeAxis, steps: pd.DataFrame) -> tuple[Floats, float]:
    start = steps["start_s"].to_numpy()
    query = np.cumsum(sum_per_bin(time, start, steps["query_tokens"].to_numpy()))
    hits = np.cumsum(sum_per_bin(time, start, steps["hit_tokens"].to_numpy()))
    rate = ratio(hits, query)
    return rate, float(rate[-1])


def _mean(column: str) -> Callable[[TimeAxis, pd.DataFrame], tuple[Floats, float]]:
    def values(time: TimeAxis, steps: pd.DataFrame) -> tuple[Floats, float]:
        line = time_average(time, steps["start_s"].to_numpy(), steps["duration_s"].to_numpy(), steps[column].to_numpy())
        end = float(steps["start_s"].iloc[-1] + steps["duration_s"].iloc[-1])
        return line, float(line.sum() * time.width_s / end) if end > 0 else 0.0

    return values


def _waiting_and_running(time: TimeAxis, steps: pd.DataFrame) -> tuple[Floats, float]:
    running, mean_running = _mean("running_requests")(time, steps)
    waiting, mean_waiting = _mean("waiting_requests")(time, steps)
    return running + waiting, mean_running + mean_waiting


def _sum_so_far(column: str) -> Callable[[TimeAxis, pd.DataFrame], tuple[Floats, float]]:
    def values(time: TimeAxis, steps: pd.DataFrame) -> tuple[Floats, float]:
        line = np.cumsum(sum_per_bin(time, steps["start_s"].to_numpy(), steps[column].to_numpy()))
        return line, float(line[-1])

    return values


QUANTITIES: tuple[Quantity, ...] = (
    Quantity(
        "hit_rate", ("query_tokens", "hit_tokens"), _hit_rate,
        "Hit rate since the start [% of prompt tokens]", "hit rate at the end", True,
    ),
    Quantity(
        "kv_usage", ("kv_usage",), _mean("kv_usage"),
        "KV blocks held by requests [% of all blocks]", "mean over the run", True,
    ),
    Quantity(
        "requests", ("running_requests", "waiting_requests"), _waiting_and_running,
        "Requests in the system [requests]", "mean over the run", False,
    ),
    Quantity(
        "evictions", ("evicted_blocks",), _sum_so_far("evicted_blocks"),
        "Evictions since the start [blocks]", "in all", False,
    ),
    Quantity(
        "preemptions", ("preemptions",), _sum_so_far("preemptions"),
        "Preemptions since the start [requests]", "in all", False,
    ),
)  # fmt: skip


def compute_series(quantity: Quantity, steps_of: Mapping[str, pd.DataFrame]) -> Series:
    """The quantity of every run; runs without steps are left out."""
    known = {name: steps for name, steps in steps_of.items() if len(steps)}
    if not known:
        raise NothingToShow("no run has steps")
    ends = [float(s["start_s"].iloc[-1] + s["duration_s"].iloc[-1]) for s in known.values()]
    time = time_axis(max(ends))
    lines, totals = {}, {}
    for (name, steps), end in zip(known.items(), ends, strict=True):
        line, totals[name] = quantity.values(time, steps)
        line[time.edges_s[:-1] > end] = np.nan
        lines[name] = line
    if all(np.isnan(line).all() or not np.nan_to_num(line).any() for line in lines.values()):
        raise NothingToShow("it is 0 in all runs")
    return Series(time, lines, totals)


def series_picture(quantity: Quantity) -> Picture:
    """The picture of one quantity for several runs; its `compute` takes a mapping of run name to steps."""

    def draw(data: Series, ax: Axes) -> None:
        for place, (name, line) in enumerate(data.lines.items()):
            ax.plot(data.time.centers, line * (100 if quantity.share else 1), color=color(place), label=label(name))
        ax.set_title(quantity.title)
        frame(ax, data.time)
        top = ax.get_ylim()[1]
        ax.set_ylim(0, top * (1.16 if len(data.lines) <= 3 else 1.3))
        percents = PercentFormatter(decimals=0)
        ax.set_yticks([t for t in ax.get_yticks() if not (quantity.share and t > 100) and t <= ax.get_ylim()[1]])
        ax.yaxis.set_major_formatter(percents if quantity.share else FuncFormatter(lambda v, _: short(v)))
        legend(ax, ncols=min(3, len(data.lines)))

    def read(data: Series) -> str:
        as_text = percent if quantity.share else number
        parts = ", ".join(f"{name} {as_text(total)}" for name, total in data.totals.items())
        return f"{quantity.total[0].upper()}{quantity.total[1:]}: {parts}."

    return Picture(
        f"compare_{quantity.name}", {"steps": (*CLOCK, *quantity.columns)},
        lambda steps_of: compute_series(quantity, steps_of), draw, read,
    )  # fmt: skip


class Cumulative(NamedTuple):
    """For each run: spans of time in order, thinned, and the share of requests at or below each."""

    spans: dict[str, Floats]
    shares: dict[str, Floats]
    medians: dict[str, float]
    tails: dict[str, float]


def compute_cumulative(start: str, end: str, requests_of: Mapping[str, pd.DataFrame]) -> Cumulative:
    """The span from one column to the other, of finished requests."""
    spans, shares, medians, tails = {}, {}, {}, {}
    for name, requests in requests_of.items():
        done = requests[(requests["status"] == "finished").to_numpy(dtype=bool)]
        values = (done[end] - done[start]).to_numpy(dtype=np.float64, na_value=np.nan)
        values = np.sort(values[~np.isnan(values)])
        if not values.size:
            continue
        share = np.linspace(0, 1, min(CURVE_POINTS, values.size))
        spans[name], shares[name] = np.quantile(values, share), share
        medians[name], tails[name] = (float(v) for v in np.quantile(values, (0.5, 0.99)))
    if not spans:
        raise NothingToShow("no run has a finished request")
    return Cumulative(spans, shares, medians, tails)


def cumulative_picture(name: str, start: str, end: str, title: str, across: str) -> Picture:
    """The picture of one latency for several runs; its `compute` takes a mapping of run name to requests."""

    def draw(data: Cumulative, ax: Axes) -> None:
        positive = [spans[spans > 0] for spans in data.spans.values()]
        for place, run in enumerate(data.spans):
            ax.plot(data.spans[run], 100 * data.shares[run], color=color(place), label=label(run))
        if any(p.size for p in positive):
            low, high = min(p[0] for p in positive if p.size), max(p[-1] for p in positive if p.size)
            ax.set_xscale("log")
            ax.set_xlim(low / 1.15, high * 1.15)
            duration_axis(ax)
        ax.set_ylim(0, 118 if len(data.spans) <= 3 else 128)
        ax.set_yticks([0, 25, 50, 75, 100])
        ax.yaxis.set_major_formatter(PercentFormatter(decimals=0))
        ax.set_title(title)
        ax.set_xlabel(across)
        legend(ax, ncols=min(3, len(data.spans)))

    def read(data: Cumulative) -> str:
        parts = ", ".join(f"{run} {duration(data.medians[run])} and {duration(data.tails[run])}" for run in data.spans)
        return f"Median and 99th percentile: {parts}."

    return Picture(
        f"compare_{name}", {"requests": ("status", start, end)},
        lambda requests_of: compute_cumulative(start, end, requests_of), draw, read,
    )  # fmt: skip


SERIES = {quantity.name: series_picture(quantity) for quantity in QUANTITIES}
LATENCIES = {
    "ttft": cumulative_picture(
        "ttft",
        "arrival_s",
        "first_token_s",
        "Time to first token [% at or below]",
        "arrival to first token",
    ),
    "end_to_end": cumulative_picture(
        "end_to_end", "arrival_s", "finish_s", "End-to-end latency [% at or below]", "arrival to last token"
    ),
}


def label(name: str) -> str:
    """A run's name, short enough for a legend, and never one that matplotlib takes for a private one."""
    text = name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"
    return f" {text}" if text.startswith("_") else text


def over_time(steps_of: Mapping[str, pd.DataFrame], quantity: str = "hit_rate", ax: Axes | None = None) -> Axes:
    """A time series of several runs on the same axes.

    `steps_of` maps names to tables of steps; quantities: hit_rate, kv_usage, requests, evictions, preemptions.
    """
    return SERIES[quantity].plot(steps_of, ax=ax)


def latency(requests_of: Mapping[str, pd.DataFrame], which: str = "ttft", ax: Axes | None = None) -> Axes:
    """A latency of several runs as cumulative shares: 'ttft' or 'end_to_end'."""
    return LATENCIES[which].plot(requests_of, ax=ax)


def all_pictures() -> list[tuple[Picture, str]]:
    """Every picture of a comparison with the one table that it takes from each run."""
    found: list[tuple[Picture, str]] = [(picture, "steps") for picture in SERIES.values()]
    return found + [(picture, "requests") for picture in LATENCIES.values()]
