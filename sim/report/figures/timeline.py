"""What happened when: hit rate, KV usage, requests in the system, evictions, work per step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from sim.report.binning import Floats, TimeAxis, extremes_per_bin, ratio, sum_per_bin, time_average, time_axis
from sim.report.picture import NothingToShow, Picture, headroom, legend
from sim.report.style import BLUE, GREEN, GREY, ORANGE, RED, TEAL, color, ink
from sim.report.wording import duration, number, percent, plural, short

if TYPE_CHECKING:
    import pandas as pd

CLOCK = ("start_s", "duration_s")


def axis_of(steps: pd.DataFrame) -> TimeAxis:
    """Time from 0 to the end of the last step."""
    if not len(steps):
        raise NothingToShow("no step was taken")
    last = len(steps) - 1
    return time_axis(float(steps["start_s"].iloc[last] + steps["duration_s"].iloc[last]))


# --- hit rate -------------------------------------------------------------------------------------


class HitRate(NamedTuple):
    """Hit rate per bin and from the start up to the end of each bin; preemptions per bin."""

    time: TimeAxis
    rate: Floats
    so_far: Floats
    preemptions: Floats


def compute_hit_rate(steps: pd.DataFrame) -> HitRate:
    """Hit tokens over query tokens of the requests scheduled in each bin."""
    time = axis_of(steps)
    start = steps["start_s"].to_numpy()
    query = sum_per_bin(time, start, steps["query_tokens"].to_numpy())
    if not query.any():
        raise NothingToShow("the prefix cache was never asked")
    hits = sum_per_bin(time, start, steps["hit_tokens"].to_numpy())
    preemptions = sum_per_bin(time, start, steps["preemptions"].to_numpy())
    return HitRate(time, ratio(hits, query), ratio(np.cumsum(hits), np.cumsum(query)), preemptions)


def draw_hit_rate(data: HitRate, ax: Axes) -> None:
    """Points and line per bin, the running total in ink, preemptions as a rug above."""
    known = ~np.isnan(data.rate)
    x = data.time.centers
    ax.fill_between(x[known], 0, 100 * data.rate[known], color=color(GREEN), alpha=0.16, linewidth=0)
    ax.plot(x[known], 100 * data.rate[known], color=color(GREEN), label="in this interval")
    ax.plot(x, 100 * data.so_far, color=ink(), linewidth=1.2, linestyle=(0, (4, 2)), label="since the start")
    percent_axis(ax, float(np.nanmax(data.rate)))
    mark_preemptions(ax, data.time, data.preemptions)
    ax.set_title("Prefix-cache hit rate over time [% of prompt tokens]")
    frame(ax, data.time)
    legend(ax)


def read_hit_rate(data: HitRate) -> str:
    """Where it ended, and how it moved between the first and the last quarter."""
    known = data.rate[~np.isnan(data.rate)]
    quarter = max(1, len(known) // 4)
    early, late = float(known[:quarter].mean()), float(known[-quarter:].mean())
    move = "rises" if late > early + 0.02 else "falls" if late < early - 0.02 else "stays level"
    if move == "stays level":
        course = f"it stays level, near {percent(late)} in the last quarter of the run"
    else:
        course = f"it {move} from {percent(early)} in the first quarter of the run to {percent(late)} in the last"
    return f"Over the whole run {percent(data.so_far[-1])} of the prompt tokens were found in the cache; {course}."


HIT_RATE = Picture(
    "hit_rate_over_time",
    {"steps": (*CLOCK, "query_tokens", "hit_tokens", "preemptions")},
    compute_hit_rate,
    draw_hit_rate,
    read_hit_rate,
)


def hit_rate_over_time(steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Prefix-cache hit rate per interval and since the start, in % of prompt tokens; preemptions marked above."""
    return HIT_RATE.plot(steps, ax=ax)


# --- KV usage -------------------------------------------------------------------------------------


class Usage(NamedTuple):
    """Mean KV usage over the time in each bin, its extremes at steps, and preemptions per bin."""

    time: TimeAxis
    mean: Floats
    low: Floats
    high: Floats
    preemptions: Floats
    peak: float


def compute_kv_usage(steps: pd.DataFrame) -> Usage:
    """Share of the blocks that requests hold; cached blocks that nobody holds count as free."""
    time = axis_of(steps)
    start, usage = steps["start_s"].to_numpy(), steps["kv_usage"].to_numpy()
    low, high = extremes_per_bin(time, start, usage)
    return Usage(
        time,
        time_average(time, start, steps["duration_s"].to_numpy(), usage),
        low,
        high,
        sum_per_bin(time, start, steps["preemptions"].to_numpy()),
        float(usage.max()),
    )


def draw_kv_usage(data: Usage, ax: Axes) -> None:
    """The mean as a line in the band of extremes, preemptions as a rug above."""
    x = data.time.centers
    ax.fill_between(
        x, 100 * data.low, 100 * data.high, color=color(BLUE), alpha=0.2, linewidth=0, label="lowest to highest"
    )
    ax.plot(x, 100 * data.mean, color=color(BLUE), label="mean")
    percent_axis(ax, 1.0)
    mark_preemptions(ax, data.time, data.preemptions)
    ax.set_title("KV blocks held by requests over time [% of all blocks]")
    frame(ax, data.time)
    legend(ax)


def read_kv_usage(data: Usage) -> str:
    """Mean, peak and preemptions."""
    count = data.preemptions.sum()
    tail = f"{plural(count, 'preemption')} followed from it" if count else "no request was preempted"
    return (
        f"Requests held {percent(float(data.mean.mean()))} of the blocks on average "
        f"and {percent(data.peak)} at the most; {tail}."
    )


KV_USAGE = Picture(
    "kv_usage_over_time", {"steps": (*CLOCK, "kv_usage", "preemptions")}, compute_kv_usage, draw_kv_usage, read_kv_usage
)


def kv_usage_over_time(steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Share of KV blocks that requests hold, mean and extremes per interval; preemptions marked above."""
    return KV_USAGE.plot(steps, ax=ax)


# --- requests in the system -----------------------------------------------------------------------


class InSystem(NamedTuple):
    """Requests running and waiting, averaged over the time in each bin."""

    time: TimeAxis
    running: Floats
    waiting: Floats
    most_waiting: int


def compute_requests(steps: pd.DataFrame) -> InSystem:
    """Averages over time of the counts that hold during each step."""
    time = axis_of(steps)
    start, length = steps["start_s"].to_numpy(), steps["duration_s"].to_numpy()
    waiting = steps["waiting_requests"].to_numpy()
    return InSystem(
        time,
        time_average(time, start, length, steps["running_requests"].to_numpy()),
        time_average(time, start, length, waiting),
        int(waiting.max()),
    )


def draw_requests(data: InSystem, ax: Axes) -> None:
    """Waiting stacked on running."""
    x = data.time.centers
    ax.stackplot(
        x,
        data.running,
        data.waiting,
        colors=[color(BLUE), color(ORANGE)],
        labels=["running", "waiting"],
        alpha=0.85,
        linewidth=0,
    )
    ax.set_title("Requests in the system over time [requests]")
    headroom(ax)
    frame(ax, data.time)
    legend(ax)


def read_requests(data: InSystem) -> str:
    """Averages, and the longest queue."""
    queue = f"the queue was at most {number(data.most_waiting)} long" if data.most_waiting else "none ever had to wait"
    return f"On average {number(float(data.running.mean()))} requests ran at once; {queue}."


REQUESTS = Picture(
    "requests_in_system",
    {"steps": (*CLOCK, "running_requests", "waiting_requests")},
    compute_requests,
    draw_requests,
    read_requests,
)


def requests_in_system(steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Requests running and waiting over time, stacked."""
    return REQUESTS.plot(steps, ax=ax)


# --- evictions ------------------------------------------------------------------------------------


class Evictions(NamedTuple):
    """Evictions per second in each bin: blocks that had served a hit, and blocks that never did."""

    time: TimeAxis
    reused: Floats
    unused: Floats
    total: int


def compute_evictions(evictions: pd.DataFrame, steps: pd.DataFrame) -> Evictions:
    """Rates per bin; `steps` says how long the run was."""
    time = axis_of(steps)
    if not len(evictions):
        raise NothingToShow("no cached block was evicted")
    when, served = evictions["time_s"].to_numpy(), evictions["hits"].to_numpy() > 0
    reused = sum_per_bin(time, when, served)
    unused = sum_per_bin(time, when) - reused
    return Evictions(time, reused / time.width_s, unused / time.width_s, len(evictions))


def draw_evictions(data: Evictions, ax: Axes) -> None:
    """Stacked areas in steps."""
    labels = ["never hit", "hit before"]
    ax.stackplot(
        data.time.edges,
        np.append(data.unused, data.unused[-1]),
        np.append(data.reused, data.reused[-1]),
        step="post",
        colors=[color(GREY), color(ORANGE)],
        labels=labels,
        linewidth=0,
        alpha=0.9,
    )
    ax.set_title("Evictions of cached blocks over time [blocks/s]")
    headroom(ax)
    frame(ax, data.time)
    legend(ax)


def read_evictions(data: Evictions) -> str:
    """How many, from when on, and the share that had been useful."""
    total = data.reused + data.unused
    first = data.time.edges_s[int(np.flatnonzero(total)[0])]
    share = float(data.reused.sum() / total.sum())
    began = "from the start" if first == 0 else f"from {duration(first)} on"
    return (
        f"{plural(data.total, 'cached block was', 'cached blocks were')} evicted, {began}; "
        f"{percent(share)} of them had served a hit before."
    )


EVICTIONS = Picture(
    "evictions_over_time",
    {"evictions": ("time_s", "hits"), "steps": CLOCK},
    compute_evictions,
    draw_evictions,
    read_evictions,
)


def evictions_over_time(evictions: pd.DataFrame, steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Evictions per second, split by whether the block had served a hit before."""
    return EVICTIONS.plot(evictions, steps, ax=ax)


# --- work -----------------------------------------------------------------------------------------


class Work(NamedTuple):
    """Tokens computed per second in each bin, in prefill and in decoding."""

    time: TimeAxis
    prefill: Floats
    decode: Floats


def compute_work(steps: pd.DataFrame) -> Work:
    """A decode request computes one token per step."""
    time = axis_of(steps)
    start = steps["start_s"].to_numpy()
    prefill = sum_per_bin(time, start, steps["prefill_tokens"].to_numpy()) / time.width_s
    decode = sum_per_bin(time, start, steps["decode_requests"].to_numpy()) / time.width_s
    return Work(time, prefill, decode)


def draw_work(data: Work, ax: Axes) -> None:
    """Two lines on a logarithmic axis: prefill is often a hundred times decoding."""
    x = data.time.centers
    for values, place, label in ((data.prefill, TEAL, "prefill"), (data.decode, ORANGE, "decode")):
        ax.plot(x, np.where(values > 0, values, np.nan), color=color(place), label=label)
    both = np.concatenate([data.prefill, data.decode])
    if both.max() > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        low, high = ax.get_ylim()
        ax.set_ylim(low, high * (high / low) ** 0.2)
    ax.set_title("Tokens computed over time [tokens/s]")
    frame(ax, data.time)
    legend(ax)


def read_work(data: Work) -> str:
    """Averages of both."""
    return (
        f"On average {number(float(data.prefill.mean()))} prompt tokens per second were computed "
        f"and {number(float(data.decode.mean()))} decode tokens per second."
    )


WORK = Picture(
    "tokens_computed", {"steps": (*CLOCK, "prefill_tokens", "decode_requests")}, compute_work, draw_work, read_work
)


def tokens_computed(steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Tokens computed per second over time, in prefill and in decoding."""
    return WORK.plot(steps, ax=ax)


# --- shared ---------------------------------------------------------------------------------------


def frame(ax: Axes, time: TimeAxis) -> None:
    """The time axis, the same in every figure of a run."""
    ax.set_xlim(time.edges[0], time.edges[-1])
    ax.set_xlabel(time.label)


def percent_axis(ax: Axes, highest: float) -> None:
    """From 0 to 100 %, or less where `highest` (a share of 1) stays low; room above for the legend and marks."""
    step = next((s for s in (0.5, 1, 2, 5, 10) if 4 * s >= 100 * highest), 25)
    ax.set_ylim(0, 4 * step * 1.22)
    ax.set_yticks([step * k for k in range(5)])
    ax.yaxis.set_major_formatter(PercentFormatter(decimals=1 if step == 0.5 else 0))


def mark_preemptions(ax: Axes, time: TimeAxis, preemptions: Floats) -> None:
    """Red marks above the data at the bins with preemptions."""
    hit = np.flatnonzero(preemptions)
    if hit.size:
        ax.plot(
            time.centers[hit],
            np.full(hit.size, 0.87),
            transform=ax.get_xaxis_transform(),
            linestyle="none",
            marker="v",
            markersize=4,
            markeredgewidth=0,
            color=color(RED),
            label=f"preemptions ({number(preemptions.sum())})",
        )
