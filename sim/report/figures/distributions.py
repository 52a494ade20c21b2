"""Distributions on a logarithmic axis: how long blocks live, how long they idle, how long requests take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from sim.report.binning import Floats, log_edges, quantiles
from sim.report.picture import NothingToShow, Picture, headroom, legend
from sim.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, TEAL, color, ink, muted
from sim.report.wording import duration, number, percent, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

TICKS = {
    1e-6: "1 µs", 1e-5: "10 µs", 1e-4: "0.1 ms", 1e-3: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s", 10.0: "10 s",
    60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 21600.0: "6 h", 86400.0: "1 d", 864000.0: "10 d", 8640000.0: "100 d",
}  # fmt: skip


class Spread(NamedTuple):
    """A distribution in shares of all values.

    `edges` bound the bins; `parts` has for each label the share of values per bin; values of 0 have
    no place on a logarithmic axis: `zeros` is their share, and they count in the quantiles
    (median, 90 and 99 per cent).
    """

    edges: Floats
    parts: dict[str, Floats]
    quantiles: list[float]
    total: int
    zeros: float


def spread(values: Floats, groups: dict[str, np.ndarray] | None = None) -> Spread:
    """Reduce values (seconds, none negative) to a histogram; `groups` are masks that part them."""
    positive = values[values > 0]
    edges = log_edges(positive) if positive.size else np.array([0.1, 1.0])
    parts = {}
    for label, mask in (groups or {"": np.ones(values.size, dtype=bool)}).items():
        chosen = values[mask]
        parts[label] = np.histogram(chosen[chosen > 0], bins=edges)[0] / values.size
    return Spread(edges, parts, quantiles(values), int(values.size), 1 - positive.size / values.size)


def draw_spread(data: Spread, ax: Axes, places: list[int]) -> None:
    """Stacked bars with the median and the 99 % point marked."""
    base = np.zeros(len(data.edges) - 1)
    for (label, share), place in zip(data.parts.items(), places, strict=False):
        ax.stairs(
            100 * (base + share), data.edges, baseline=100 * base, fill=True, color=color(place), alpha=0.85,
            label=label or None,
        )  # fmt: skip
        base = base + share
    ax.set_xscale("log")
    ax.set_xlim(data.edges[0], data.edges[-1])
    duration_axis(ax)
    ax.set_ylim(0, max(1e-9, 100 * float(base.max())))
    headroom(ax, 0.4 if len(data.parts) > 1 else 0.22)
    ax.set_yticks([tick for tick in ax.get_yticks() if tick <= min(100, ax.get_ylim()[1])])
    mark_quantiles(ax, data)
    if data.zeros >= 0.0005:
        ax.text(
            0.01, 0.8, f"{percent(data.zeros)} at 0", transform=ax.transAxes, color=muted(), fontsize=8.5
        )  # fmt: skip
    if len(data.parts) > 1:
        legend(ax)


def mark_quantiles(ax: Axes, data: Spread) -> None:
    """Thin lines at the median and the 99 % point, named above, one under the other."""
    low, high = ax.get_xlim()
    top = 0.86 if len(data.parts) > 1 else 0.97
    marks = [("median", data.quantiles[0]), ("p99", data.quantiles[2])]
    if marks[0][1] == marks[1][1]:
        marks = [("median and p99", marks[0][1])]
    for row, (name, value) in enumerate(marks):
        if not low <= value <= high:
            continue
        height = top - 0.075 * row
        left = bool(np.log(value / low) > 0.55 * np.log(high / low))
        ax.axvline(value, ymax=height, color=ink(), linewidth=1, linestyle=(0, (3, 2)))
        ax.annotate(
            f"{name} {duration(value)}",
            (value, height),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if left else 3, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            fontsize=8.5,
            color=ink(),
        )


def duration_axis(ax: Axes) -> None:
    """Ticks at the spans people think in: 1 s, 1 min, 1 h."""
    low, high = ax.get_xlim()
    inside = [t for t in TICKS if low <= t <= high]
    if len(inside) < 3:  # a narrow span: 1, 2 and 5 of every decade
        decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        inside = [t for k in decades for t in (10.0**k, 2 * 10.0**k, 5 * 10.0**k) if low <= t <= high]
    if len(inside) < 2:  # a very narrow one: round places of its own
        inside = [float(t) for t in MaxNLocator(4).tick_values(low, high) if low <= t <= high]
    ax.xaxis.set_major_locator(FixedLocator(inside))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: TICKS.get(value) or duration(float(f"{value:.3g}"))))


# --- blocks ---------------------------------------------------------------------------------------


def _by_use(evictions: pd.DataFrame, column: str) -> Spread:
    if not len(evictions):
        raise NothingToShow("no cached block was evicted")
    served = evictions["hits"].to_numpy() > 0
    return spread(evictions[column].to_numpy(dtype=np.float64), {"never hit": ~served, "hit before": served})


def compute_lifetime(evictions: pd.DataFrame) -> Spread:
    """From the allocation of a block to its eviction."""
    return _by_use(evictions, "lifetime_s")


def draw_lifetime(data: Spread, ax: Axes) -> None:
    """Stacked by use."""
    draw_spread(data, ax, [GREY, ORANGE])
    ax.set_title("How long evicted blocks had lived [% of evictions]")
    ax.set_xlabel("lifetime: allocation to eviction")


def read_lifetime(data: Spread) -> str:
    """Median and the long end."""
    return (
        f"Half of the {number(data.total)} evicted blocks had lived for less than {duration(data.quantiles[0])}, "
        f"one in a hundred for more than {duration(data.quantiles[2])}."
    )


LIFETIME = Picture(
    "block_lifetime", {"evictions": ("lifetime_s", "hits")}, compute_lifetime, draw_lifetime, read_lifetime
)


def block_lifetime(evictions: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Distribution of the time from a block's allocation to its eviction."""
    return LIFETIME.plot(evictions, ax=ax)


def compute_idle(evictions: pd.DataFrame) -> Spread:
    """From the last release of a block to its eviction."""
    return _by_use(evictions, "idle_s")


def draw_idle(data: Spread, ax: Axes) -> None:
    """Stacked by use."""
    draw_spread(data, ax, [GREY, ORANGE])
    ax.set_title("How long blocks lay idle before eviction [% of evictions]")
    ax.set_xlabel("idle: last release to eviction")


def read_idle(data: Spread) -> str:
    """What a prefix must beat to be found again."""
    return (
        f"A cached block survived {duration(data.quantiles[0])} without use in the median: "
        "a prefix that comes back later than that is likely to be gone."
    )


IDLE = Picture("idle_before_eviction", {"evictions": ("idle_s", "hits")}, compute_idle, draw_idle, read_idle)


def idle_before_eviction(evictions: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Distribution of the time from a block's last use to its eviction."""
    return IDLE.plot(evictions, ax=ax)


# --- requests -------------------------------------------------------------------------------------


def _finished(requests: pd.DataFrame) -> np.ndarray:
    done = (requests["status"] == "finished").to_numpy(dtype=bool)
    if not done.any():
        raise NothingToShow("no request finished")
    return done


def _between(requests: pd.DataFrame, start: str, end: str) -> Spread:
    done = _finished(requests)
    spans = (requests[end] - requests[start]).to_numpy(dtype=np.float64, na_value=np.nan)[done]
    spans = spans[~np.isnan(spans)]
    if not spans.size:
        raise NothingToShow("no finished request has these times")
    return spread(spans)


def compute_ttft(requests: pd.DataFrame) -> Spread:
    """Arrival to first token, of finished requests."""
    return _between(requests, "arrival_s", "first_token_s")


def compute_e2e(requests: pd.DataFrame) -> Spread:
    """Arrival to finish, of finished requests."""
    return _between(requests, "arrival_s", "finish_s")


def compute_queue(requests: pd.DataFrame) -> Spread:
    """Arrival to first scheduling, of finished requests."""
    return _between(requests, "arrival_s", "first_scheduled_s")


def compute_tpot(requests: pd.DataFrame) -> Spread:
    """Time after the first token over the tokens after it, of finished requests with two tokens or more."""
    done = _finished(requests) & (requests["output_tokens"] > 1).to_numpy(dtype=bool)
    if not done.any():
        raise NothingToShow("no finished request has more than one output token")
    chosen = requests[done]
    spans = (chosen["finish_s"] - chosen["first_token_s"]).to_numpy(dtype=np.float64, na_value=np.nan)
    per_token = spans / (chosen["output_tokens"].to_numpy(dtype=np.float64) - 1)
    return spread(per_token[~np.isnan(per_token)])


def compute_itl(
    steps: pd.DataFrame, stalls: pd.DataFrame | None = None, requests: pd.DataFrame | None = None
) -> Spread:
    """Time from one token of a request to its next, over all requests, as the summary has it.

    A request that decodes gets a token at the end of each step; `stalls` holds the tokens that came
    later than that.  Some of these were decode requests of their step (passed over before), others
    ended a chunk (after a preemption); how many were which follows from the number of all tokens in
    `requests`, and the shorter gaps are taken for those that were passed over.  Without these tables
    every token counts as one step after the one before.
    """
    counts = steps["decode_requests"].to_numpy(dtype=np.float64).copy()
    ends = (steps["start_s"] + steps["duration_s"]).to_numpy(dtype=np.float64)
    gaps = np.diff(ends, prepend=steps["start_s"].iloc[:1])
    if stalls is not None:
        late = stalls["gap_s"].to_numpy(dtype=np.float64)
        if requests is not None:
            tokens = int(np.maximum(requests["output_tokens"].to_numpy() - 1, 0).sum())
            passed_over = min(max(int(counts.sum()) + late.size - tokens, 0), late.size)
            place = np.searchsorted(steps["step"].to_numpy(), stalls["step"].to_numpy())
            np.subtract.at(counts, place[np.argsort(late, kind="stable")[:passed_over]], 1)
        gaps = np.concatenate([gaps, late])
        counts = np.concatenate([counts, np.ones(late.size)])
    gaps, counts = gaps[counts > 0], counts[counts > 0]
    if not gaps.size:
        raise NothingToShow("no request decoded")
    order = np.argsort(gaps, kind="stable")
    reached = np.cumsum(counts[order]) / counts.sum()
    places = [float(gaps[order][np.searchsorted(reached, q)]) for q in (0.5, 0.9, 0.99)]
    positive = gaps > 0
    edges = log_edges(gaps[positive]) if positive.any() else np.array([0.1, 1.0])
    share = np.histogram(gaps[positive], bins=edges, weights=counts[positive])[0] / counts.sum()
    zeros = float(counts[~positive].sum() / counts.sum())
    return Spread(edges, {"": share}, places, int(counts.sum()), zeros)


def _latency(
    name: str, columns: tuple[str, ...], compute: Callable[..., Spread], place: int, title: str, label: str, what: str
) -> Picture:
    """A picture of one of the latencies of requests."""

    def draw(data: Spread, ax: Axes) -> None:
        draw_spread(data, ax, [place])
        ax.set_title(title)
        ax.set_xlabel(label)

    def read(data: Spread) -> str:
        middle, _, tail = data.quantiles
        if data.quantiles[0] == data.quantiles[2]:
            return f"{what} is {duration(middle)} for practically all of {plural(data.total, 'value')}."
        return f"{what} is {duration(middle)} in the median and {duration(tail)} at the 99th percentile."

    return Picture(name, {"requests": columns}, compute, draw, read)


TTFT = _latency(
    "ttft", ("status", "arrival_s", "first_token_s"), compute_ttft, TEAL,
    "Time to first token [% of finished requests]", "arrival to first token", "The time to the first token",
)  # fmt: skip
E2E = _latency(
    "end_to_end", ("status", "arrival_s", "finish_s"), compute_e2e, BLUE,
    "End-to-end latency [% of finished requests]", "arrival to last token", "The time from arrival to the last token",
)  # fmt: skip
TPOT = _latency(
    "tpot", ("status", "first_token_s", "finish_s", "output_tokens"), compute_tpot, PURPLE,
    "Time per output token [% of finished requests]", "mean per token after the first", "The time per output token",
)  # fmt: skip
QUEUE = _latency(
    "queue_time", ("status", "arrival_s", "first_scheduled_s"), compute_queue, ORANGE,
    "Time in the queue [% of finished requests]", "arrival to first scheduled", "The time in the queue",
)  # fmt: skip
ITL = replace(
    _latency(
        "inter_token", (), compute_itl, GREEN,
        "Time between two tokens [% of decode tokens]", "one token to the next", "The time between two tokens",
    ),
    needs={"steps": ("step", "start_s", "duration_s", "decode_requests")},
    welcome={"stalls": ("step", "gap_s"), "requests": ("output_tokens",)},
)  # fmt: skip


def ttft(requests: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Distribution of the time from arrival to the first token, finished requests."""
    return TTFT.plot(requests, ax=ax)


def end_to_end(requests: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Distribution of the time from arrival to the last token, finished requests."""
    return E2E.plot(requests, ax=ax)


def tpot(requests: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Distribution of the mean time per output token after the first, finished requests."""
    return TPOT.plot(requests, ax=ax)


def queue_time(requests: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Distribution of the time from arrival to the first scheduling, finished requests."""
    return QUEUE.plot(requests, ax=ax)


def inter_token(
    steps: pd.DataFrame,
    stalls: pd.DataFrame | None = None,
    requests: pd.DataFrame | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Distribution of the time between two tokens of a request; `stalls` and `requests` make it exact."""
    return ITL.plot(steps, stalls, requests, ax=ax)
