"""What is in a workload: arrivals, lengths, reuse as the cache fills, popularity of prefixes, room needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from sim.report.binning import Floats, log_edges, time_unit
from sim.report.picture import NothingToShow, Picture, headroom, legend
from sim.report.style import BLUE, GREEN, ORANGE, PURPLE, TEAL, color, muted
from sim.report.wording import number, percent, short

if TYPE_CHECKING:
    import numpy.typing as npt

    from sim.analysis.inspection import Inspection

BINS = 120
GROUPS = 60


class Rate(NamedTuple):
    """Arrivals per second in equal bins of time."""

    edges: Floats
    unit: str
    per_s: Floats
    closed: bool


def compute_rate(found: Inspection) -> Rate:
    """Rates over time."""
    times = found.statistics.times()
    if not len(times) or times.max() <= times.min():
        raise NothingToShow("all requests arrive at one time")
    start = float(times.min())
    span = float(times.max()) - start
    unit, scale = time_unit(span)
    bins = min(BINS, max(1, len(times) // 5))
    counts, edges = np.histogram(times - start, bins=bins, range=(0, span))
    return Rate(edges / scale, unit, counts / (span / bins), found.result["closed_loop_requests"] > 0)


def draw_rate(data: Rate, ax: Axes) -> None:
    """Steps over time with the mean as a line."""
    ax.stairs(data.per_s, data.edges, fill=True, color=color(BLUE), alpha=0.85)
    ax.axhline(float(data.per_s.mean()), color=muted(), linewidth=1, linestyle=(0, (4, 2)))
    ax.set_xlim(0, data.edges[-1])
    ax.set_xlabel(f"{'time if answers took none' if data.closed else 'time of arrival'} [{data.unit}]")
    ax.set_title("Arrivals [requests/s]")


def read_rate(data: Rate) -> str:
    """Mean and extremes."""
    mean = float(data.per_s.mean())
    return (
        f"On average {number(mean)} requests/s; the busiest of {len(data.per_s)} equal parts of time has "
        f"{number(float(data.per_s.max()))}, the calmest {number(float(data.per_s.min()))}."
    )


class Lengths(NamedTuple):
    """Distributions of prompt and output tokens: share of requests in each bin."""

    edges: Floats
    prompt: Floats
    output: Floats
    medians: tuple[float, float]


def compute_lengths(found: Inspection) -> Lengths:
    """Histograms on one logarithmic axis."""
    prompt, output = (values.astype(np.float64) for values in found.statistics.lengths())
    positive = np.concatenate([prompt[prompt > 0], output[output > 0]])
    if not len(positive):
        raise NothingToShow("no request has a token")
    edges = log_edges(positive)
    parts = [np.histogram(values[values > 0], bins=edges)[0] / len(values) for values in (prompt, output)]
    return Lengths(edges, parts[0], parts[1], (float(np.median(prompt)), float(np.median(output))))


def draw_lengths(data: Lengths, ax: Axes) -> None:
    """Two outlines over each other."""
    for share, name, place in ((data.prompt, "prompt", BLUE), (data.output, "answer", ORANGE)):
        ax.stairs(100 * share, data.edges, fill=True, color=color(place), alpha=0.25)
        ax.stairs(100 * share, data.edges, color=color(place), linewidth=1.5, label=name)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    ax.set_xlabel("tokens")
    ax.set_title("Lengths of prompts and answers [% of requests]")
    headroom(ax)
    legend(ax)


def read_lengths(data: Lengths) -> str:
    """The medians."""
    prompt, answer = (number(median) for median in data.medians)
    return f"Half of the prompts have at most {prompt} tokens, half of the answers {answer}."


class Filling(NamedTuple):
    """Hit share of prompt tokens in groups of requests in order, and over all requests so far."""

    at: Floats
    group: Floats
    so_far: Floats


def compute_filling(found: Inspection) -> Filling:
    """Shares by groups of equally many requests."""
    hit, tokens = found.reuse.hit_and_prompt_tokens()
    if not len(tokens) or not tokens.sum():
        raise NothingToShow("no prompt has a token")
    ends = np.unique(np.linspace(0, len(tokens), min(GROUPS, len(tokens)) + 1).astype(np.int64))
    sums = [np.concatenate([[0], np.cumsum(values)])[ends].astype(np.float64) for values in (hit, tokens)]
    part = np.diff(sums[1])
    group = np.divide(np.diff(sums[0]), part, out=np.zeros(len(part)), where=part > 0)
    so_far = np.divide(sums[0][1:], sums[1][1:], out=np.zeros(len(part)), where=sums[1][1:] > 0)
    return Filling(ends[1:].astype(np.float64), group, so_far)


def draw_filling(data: Filling, ax: Axes) -> None:
    """Groups as points, the share so far as a line."""
    ax.plot(
        data.at, 100 * data.group, linestyle="none", marker="o", markersize=3, color=color(TEAL), label="at that time"
    )
    ax.plot(data.at, 100 * data.so_far, color=color(BLUE), label="so far")
    ax.set_xlim(0, data.at[-1])
    ax.set_ylim(0, max(5.0, min(118.0, 125 * float(max(data.group.max(), data.so_far.max())))))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    ax.set_xlabel("requests, in order")
    ax.set_title("Prompt tokens seen before [%]")
    legend(ax)


def read_filling(data: Filling) -> str:
    """Start, end and the whole."""
    return (
        f"An infinite cache would hit {percent(float(data.so_far[-1]))} of all prompt tokens; "
        f"in the last of {len(data.at)} groups of requests {percent(float(data.group[-1]))}."
    )


class Uses(NamedTuple):
    """Share of all prompt tokens, and of distinct ones, by the number of prompts that have them."""

    names: list[str]
    prompt: list[float]
    distinct: list[float]


def compute_uses(found: Inspection) -> Uses:
    """Shares by number of prompts."""
    rows = found.result["popularity"]["by_uses"]
    prompt = sum(row["prompt_tokens"] for row in rows)
    distinct = sum(row["distinct_tokens"] for row in rows)
    if not prompt:
        raise NothingToShow("no prompt has a token")
    return Uses(
        [row["prompts"] for row in rows],
        [row["prompt_tokens"] / prompt for row in rows],
        [row["distinct_tokens"] / distinct for row in rows],
    )


def draw_uses(data: Uses, ax: Axes) -> None:
    """Pairs of bars."""
    places = np.arange(len(data.names))
    ax.bar(places - 0.2, [100 * x for x in data.prompt], 0.38, color=color(BLUE), label="of prompt tokens")
    ax.bar(places + 0.2, [100 * x for x in data.distinct], 0.38, color=color(GREEN), label="of distinct tokens (room)")
    ax.set_xticks(places, data.names)
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("prompts that have them")
    ax.set_title("Popularity of prefixes [%]")
    headroom(ax)
    legend(ax)


def read_uses(data: Uses) -> str:
    """What is used once."""
    return (
        f"{percent(data.prompt[0])} of the prompt tokens belong to one prompt only; kept in a cache they would take "
        f"{percent(data.distinct[0])} of its room."
    )


class Room(NamedTuple):
    """Share of prompt tokens whose last use is at most so many distinct tokens ago."""

    tokens: Floats
    share: Floats
    half: float


def compute_room(found: Inspection) -> Room:
    """The cumulative distribution of reuse distances."""
    distance, weight = found.reuse.distances()
    total = found.result["prompt_tokens"].get("total", 0)
    if not len(distance):
        raise NothingToShow("no prompt begins as an earlier one did")
    order = np.argsort(distance, kind="stable")
    tokens = distance[order].astype(np.float64)
    share = np.cumsum(weight[order]) / total
    half = float(tokens[int(np.searchsorted(share, share[-1] / 2))])
    keep = thinned(tokens)
    return Room(np.maximum(tokens[keep], 1), share[keep], half)


def thinned(ascending: Floats, points: int = 400) -> npt.NDArray[np.int64]:
    """Places of the last entry of each of `points` steps on a logarithmic axis."""
    steps = np.geomspace(1, max(float(ascending[-1]), 2), points)
    found = np.searchsorted(ascending, steps, side="right") - 1
    return np.unique(np.append(found[found >= 0], len(ascending) - 1))


def draw_room(data: Room, ax: Axes) -> None:
    """A step curve on a logarithmic axis."""
    ax.step(data.tokens, 100 * data.share, where="post", color=color(PURPLE))
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(0, max(1e-6, 108 * float(data.share[-1])))
    ax.set_xlabel("distinct prompt tokens used since (about the room an LRU cache needs)")
    ax.set_title("Prompt tokens last used at most so far back [%]")


def read_room(data: Room) -> str:
    """The room for half of what is possible."""
    return (
        f"At most {percent(float(data.share[-1]))} can hit; for half of that an LRU cache needs room for about "
        f"{short(data.half)} tokens besides the prompt at hand."
    )


class Sizes(NamedTuple):
    """Hit shares by block size."""

    sizes: list[int]
    lines: list[tuple[str, list[float]]]


def compute_sizes(found: Inspection) -> Sizes:
    """Shares of the cold cache."""
    rows: list[dict[str, Any]] = found.result["reuse"]["by_block_size"]
    lines = []
    for name, label in (
        ("full_blocks", "full blocks"),
        ("blocks", "with partial"),
        ("engine_tokens", "engine's tokens"),
    ):
        lines.append((label, [row["cold"][name]["share"] or 0.0 for row in rows]))
    if not any(any(values) for _, values in lines):
        raise NothingToShow("nothing can hit at any block size")
    return Sizes([row["block_size"] for row in rows], lines)


def draw_sizes(data: Sizes, ax: Axes) -> None:
    """A line for each definition."""
    for (label, values), place in zip(data.lines, (BLUE, ORANGE, GREEN), strict=True):
        ax.plot(
            data.sizes, [100 * value for value in values], marker="o", markersize=3.5, color=color(place), label=label
        )
    ax.set_xscale("log", base=2)
    ax.set_xticks(data.sizes, [str(size) for size in data.sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    ax.set_ylim(max(0.0, low - 0.3 * (high - low)), high + 0.35 * (high - low) + 0.5)
    ax.set_xlabel("block size [tokens]")
    ax.set_title("Hit share of an infinite cache by block size [%]")
    legend(ax)


def read_sizes(data: Sizes) -> str:
    """First against last."""
    values = data.lines[2][1]
    return (
        f"Of the prompt tokens an engine could hit {percent(values[0])} with blocks of {data.sizes[0]} and "
        f"{percent(values[-1])} with blocks of {data.sizes[-1]}."
    )


PICTURES = (
    Picture("arrivals", {}, compute_rate, draw_rate, read_rate),
    Picture("lengths", {}, compute_lengths, draw_lengths, read_lengths),
    Picture("reuse_over_requests", {}, compute_filling, draw_filling, read_filling),
    Picture("popularity", {}, compute_uses, draw_uses, read_uses),
    Picture("reuse_distance", {}, compute_room, draw_room, read_room),
    Picture("block_sizes", {}, compute_sizes, draw_sizes, read_sizes),
)
"""All figures of a workload's page, in order; each computes from an `Inspection`."""
