"""Why blocks missed, and what evictions cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from sim.report.binning import Floats, TimeAxis, ratio, sum_per_bin
from sim.report.figures.timeline import CLOCK, axis_of, frame
from sim.report.picture import NothingToShow, Picture, headroom, legend
from sim.report.style import BLUE, GOLD, GREEN, GREY, ORANGE, PURPLE, RED, TEAL, color, muted
from sim.report.wording import number, percent, plural, short

if TYPE_CHECKING:
    import pandas as pd

# cause as recorded -> words, colour
CAUSES: dict[str, tuple[str, int]] = {
    "never_seen": ("never seen", GREY),
    "evicted": ("evicted", ORANGE),
    "key_differs": ("key differs", PURPLE),
    "preempted": ("lost by preemption", RED),
    "not_computed_yet": ("not computed yet", TEAL),
    "unreachable": ("cached out of reach", GOLD),
    "not_kept": ("not kept for its window", GREEN),
    "cap": ("last token of a known prompt", BLUE),
}
OTHERS = (GOLD, BLUE)
MOST_CATEGORIES = 8
AGES_S = (1.0, 10.0, 60.0, 600.0, 3600.0)
AGE_NAMES = ("< 1 s", "1–10 s", "10–60 s", "1–10 min", "10–60 min", "≥ 1 h")


def words_of(cause: str) -> str:
    """A cause in words."""
    return CAUSES[cause][0] if cause in CAUSES else cause.replace("_", " ")


def place_of(cause: str, index: int) -> int:
    """The colour of a cause; one that is not known takes a spare colour."""
    return CAUSES[cause][1] if cause in CAUSES else OTHERS[index % len(OTHERS)]


def causes_in_order(causes: pd.Series[str]) -> list[str]:
    """The causes that occur, the known ones first and in their order."""
    found = list(dict.fromkeys(causes.tolist()))
    return [c for c in CAUSES if c in found] + sorted(c for c in found if c not in CAUSES)


def blocks_of(misses: pd.DataFrame) -> Floats:
    """Blocks that each row stands for; one where the table doesn't say."""
    if "blocks" not in misses.columns:
        return np.ones(len(misses))
    return misses["blocks"].to_numpy(dtype=np.float64)


# --- over time ------------------------------------------------------------------------------------


class CausesOverTime(NamedTuple):
    """Missed blocks per second in each bin, by cause."""

    time: TimeAxis
    rates: dict[str, Floats]
    totals: dict[str, float]


def compute_over_time(misses: pd.DataFrame, steps: pd.DataFrame) -> CausesOverTime:
    """Blocks that missed, by cause; `steps` says how long the run was."""
    if not len(misses):
        raise NothingToShow("no full block missed")
    time = axis_of(steps)
    causes, when = misses["cause"], misses["time_s"].to_numpy()
    blocks = blocks_of(misses)
    rates, totals = {}, {}
    for cause in causes_in_order(causes):
        mask = (causes == cause).to_numpy(dtype=bool)
        rates[cause] = sum_per_bin(time, when[mask], blocks[mask]) / time.width_s
        totals[cause] = float(blocks[mask].sum())
    return CausesOverTime(time, rates, totals)


def draw_over_time(data: CausesOverTime, ax: Axes) -> None:
    """Stacked steps."""
    ax.stackplot(
        data.time.edges,
        *(np.append(rate, rate[-1]) for rate in data.rates.values()),
        step="post",
        colors=[color(place_of(cause, i)) for i, cause in enumerate(data.rates)],
        labels=[words_of(cause) for cause in data.rates],
        linewidth=0,
        alpha=0.9,
    )
    ax.set_title("Why full blocks missed, over time [blocks/s]")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: short(v)))
    headroom(ax, 0.05 + 0.115 * -(-len(data.rates) // 3))
    frame(ax, data.time)
    legend(ax, ncols=min(3, len(data.rates)))


def read_over_time(data: CausesOverTime) -> str:
    """The shares of the causes."""
    total = sum(data.totals.values())
    parts = sorted(data.totals.items(), key=lambda pair: -pair[1])
    shares = ", ".join(f"{percent(count / total)} {words_of(cause)}" for cause, count in parts)
    return f"{plural(total, 'full block')} missed: {shares}."


OVER_TIME = Picture(
    "miss_causes_over_time",
    {"misses": ("time_s", "cause", "blocks?"), "steps": CLOCK},
    compute_over_time,
    draw_over_time,
    read_over_time,
)


def miss_causes_over_time(misses: pd.DataFrame, steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Missed full blocks per second, by cause."""
    return OVER_TIME.plot(misses, steps, ax=ax)


# --- by category ----------------------------------------------------------------------------------


class CausesByCategory(NamedTuple):
    """Missed blocks by cause for each category, the largest first; categories beyond the drawn ones are counted."""

    categories: list[str]
    blocks: dict[str, Floats]
    left_out: int


def compute_by_category(misses: pd.DataFrame, requests: pd.DataFrame) -> CausesByCategory:
    """Join each miss with the category of its request."""
    if not len(misses):
        raise NothingToShow("no full block missed")
    category = requests.set_index("request_index")["category"]
    of_miss = misses["request_index"].map(category).fillna("").to_numpy(dtype=object)
    names = sorted(set(of_miss.tolist()))
    if len(names) < 2:
        raise NothingToShow("the workload has a single category")
    code = np.searchsorted(np.array(names, dtype=object), of_miss)
    blocks = blocks_of(misses)
    totals = np.bincount(code, weights=blocks, minlength=len(names))
    order = np.argsort(-totals, kind="stable")[:MOST_CATEGORIES]
    parts = {}
    for cause in causes_in_order(misses["cause"]):
        mask = (misses["cause"] == cause).to_numpy(dtype=bool)
        per_category = np.bincount(code[mask], weights=blocks[mask], minlength=len(names)).astype(np.float64)
        parts[cause] = per_category[order]
    return CausesByCategory([names[i] for i in order], parts, max(0, len(names) - MOST_CATEGORIES))


def draw_by_category(data: CausesByCategory, ax: Axes) -> None:
    """One bar of shares per category."""
    total = np.sum(list(data.blocks.values()), axis=0)
    y = np.arange(len(data.categories))[::-1]
    left = np.zeros(len(y))
    for i, (cause, blocks) in enumerate(data.blocks.items()):
        share = 100 * blocks / total
        ax.barh(y, share, 0.66, left=left, color=color(place_of(cause, i)), alpha=0.9, label=words_of(cause))
        left += share
    names = [name[:18] or "(none)" for name in data.categories]
    ax.set_yticks(y, [f"{name}\n{short(float(t))} blocks" for name, t in zip(names, total, strict=True)])
    ax.set_xlim(0, 100)
    rows = -(-len(data.blocks) // 3)
    ax.set_ylim(-0.6, len(y) - 0.4 + (0.04 + 0.1 * rows) * len(y) + 0.25)
    ax.xaxis.set_major_formatter(PercentFormatter(decimals=0))
    ax.grid(visible=False, axis="y")
    ax.set_title("Why full blocks missed, by category [% of blocks]")
    legend(ax, ncols=min(3, len(data.blocks)))


def read_by_category(data: CausesByCategory) -> str:
    """The leading cause of each category."""
    total = np.sum(list(data.blocks.values()), axis=0)
    causes = list(data.blocks)
    table = np.array([data.blocks[c] for c in causes])
    parts = []
    for i, name in enumerate(data.categories):
        best = int(table[:, i].argmax())
        parts.append(f"{name or '(none)'}: {words_of(causes[best])}, {percent(float(table[best, i] / total[i]))}")
    count = plural(data.left_out, "smaller category is", "smaller categories are")
    more = f" {count} not drawn." if data.left_out else ""
    return f"Leading causes: {'; '.join(parts)}.{more}"


BY_CATEGORY = Picture(
    "miss_causes_by_category",
    {"misses": ("request_index", "cause", "blocks?"), "requests": ("request_index", "category")},
    compute_by_category,
    draw_by_category,
    read_by_category,
)


def miss_causes_by_category(misses: pd.DataFrame, requests: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Shares of the causes of missed full blocks, for each category."""
    return BY_CATEGORY.plot(misses, requests, ax=ax)


# --- regret ---------------------------------------------------------------------------------------


class Regret(NamedTuple):
    """Tokens computed again per evicted block, and the share of evicted blocks that were missed later, by class.

    `avoidable` is the part of `tokens` whose evictions had a better victim.
    """

    names: list[str]
    tokens: Floats
    avoidable: Floats
    missed: Floats
    evictions: Floats
    total_tokens: float


def _regret(costs: pd.DataFrame, code: np.ndarray, names: list[str]) -> Regret:
    size = len(names)
    again = costs["recomputed_tokens"].to_numpy(dtype=np.float64)
    better = costs["better_victim"].to_numpy() > 0
    count = np.bincount(code, minlength=size).astype(np.float64)
    used = np.flatnonzero(count)
    part = slice(int(used[0]), int(used[-1]) + 1)
    tokens, avoidable, missed = (
        ratio(np.bincount(code, weights=weights, minlength=size), count)[part]
        for weights in (again, again * better, again > 0)
    )
    return Regret(names[part], tokens, avoidable, missed, count[part], float(again.sum()))


def compute_regret_by_depth(evictions: pd.DataFrame, costs: pd.DataFrame) -> Regret:
    """Classes of depth double: 0, 1, 2–3, 4–7 blocks from the start of the prompt."""
    if not len(evictions):
        raise NothingToShow("no cached block was evicted")
    depth = evictions["depth_blocks"].to_numpy(dtype=np.int64)
    code = np.where(depth <= 0, 0, np.floor(np.log2(np.maximum(depth, 1))).astype(np.int64) + 1)
    names = ["0", "1"] + [f"{short(2**k)}–{short(2 ** (k + 1) - 1)}" for k in range(1, int(code.max()))]
    return _regret(costs, code, names[: int(code.max()) + 1])


def compute_regret_by_age(evictions: pd.DataFrame, costs: pd.DataFrame) -> Regret:
    """Classes of the time since the block was allocated."""
    if not len(evictions):
        raise NothingToShow("no cached block was evicted")
    age = evictions["lifetime_s"].to_numpy(dtype=np.float64)
    return _regret(costs, np.searchsorted(np.array(AGES_S), age, side="right"), list(AGE_NAMES))


def _draw_regret(data: Regret, ax: Axes, title: str, across: str) -> None:
    x = np.arange(len(data.names))
    tokens, avoidable = np.nan_to_num(data.tokens), np.nan_to_num(data.avoidable)
    ax.bar(x, avoidable, 0.72, color=color(ORANGE), alpha=0.9, label="a better victim stayed free")
    ax.bar(x, tokens - avoidable, 0.72, bottom=avoidable, color=color(GREY), alpha=0.9, label="no better victim")
    ax.set_xticks(x, data.names)
    if len(data.names) > 8 or sum(map(len, data.names)) > 44:
        ax.tick_params(axis="x", labelrotation=35)
    ax.grid(visible=False, axis="x")
    headroom(ax, 0.24)
    legend(ax)
    for i, share in enumerate(data.missed):
        if not np.isnan(share):
            height = float(tokens[i])
            ax.annotate(
                percent(float(share), 0), (i, height), xytext=(0, 2), textcoords="offset points", ha="center",
                va="bottom", fontsize=7.5, color=muted(),
            )  # fmt: skip
    ax.set_xlabel(across)
    ax.set_title(title)


def _read_regret(data: Regret, what: str) -> str:
    if data.total_tokens == 0:
        return "No evicted block was missed later: no eviction cost anything."
    worst = int(np.nanargmax(data.tokens))
    share = float(np.nansum(data.missed * data.evictions) / data.evictions.sum())
    avoidable = float(np.nansum(data.avoidable * data.evictions)) / data.total_tokens
    return (
        f"{number(data.total_tokens)} tokens were computed again because of evictions, {percent(avoidable)} of them "
        f"though a better victim stayed free; {percent(share)} of the evicted blocks were missed later (shares above "
        f"the bars). Dearest: {what} {data.names[worst]}, {number(float(data.tokens[worst]))} tokens per evicted block."
    )


REGRET_BY_DEPTH = Picture(
    "regret_by_depth",
    {"evictions": ("depth_blocks",), "eviction_costs": ("recomputed_tokens", "better_victim")},
    compute_regret_by_depth,
    lambda data, ax: _draw_regret(
        data, ax, "Cost of evictions by depth [tokens/eviction]", "depth of the block in its prompt [blocks]"
    ),
    lambda data: _read_regret(data, "depth"),
)
REGRET_BY_AGE = Picture(
    "regret_by_age",
    {"evictions": ("lifetime_s",), "eviction_costs": ("recomputed_tokens", "better_victim")},
    compute_regret_by_age,
    lambda data, ax: _draw_regret(
        data, ax, "Cost of evictions by age [tokens/eviction]", "age of the block: allocation to eviction"
    ),
    lambda data: _read_regret(data, "age"),
)


def regret_by_depth(evictions: pd.DataFrame, costs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Tokens computed again per evicted block, by the block's depth in its prompt."""
    return REGRET_BY_DEPTH.plot(evictions, costs, ax=ax)


def regret_by_age(evictions: pd.DataFrame, costs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Tokens computed again per evicted block, by the block's age."""
    return REGRET_BY_AGE.plot(evictions, costs, ax=ax)
