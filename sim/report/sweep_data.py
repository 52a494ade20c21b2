"""The points of a sweep: which parameters vary, which figures there are, and what to choose."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sim.errors import ResultsError
from sim.report.binning import Floats
from sim.report.values import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

SEEDS = ("seed",)
CONFIG_ROOTS = ("engine", "memory", "timing", "workload", "workloads", "eviction", "warmup", "slo", "serve", "variant")
BUDGETS = (
    "memory.kv_cache_memory",
    "memory.num_gpu_blocks",
    "engine.num_gpu_blocks_override",
    "memory.gpu_memory_utilization",
)
BLOCK_SIZE = "engine.block_size"
SHORT_NAMES = {
    "kv_cache_memory": "KV memory",
    "num_gpu_blocks": "GPU blocks",
    "num_gpu_blocks_override": "GPU blocks",
    "gpu_memory_utilization": "GPU memory utilization",
    "policy": "eviction policy",
}
BINARY_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Metric(NamedTuple):
    """A figure of merit: its key here, words, the columns it may stand in, and which way is better."""

    key: str
    label: str
    columns: tuple[str, ...]
    better: Literal["high", "low"]


METRICS: tuple[Metric, ...] = (
    Metric("hit_rate", "hit rate", ("hit_rate.tokens",), "high"),
    Metric("evictions", "evictions", ("evictions",), "low"),
    Metric("preemptions", "preemptions", ("preemptions",), "low"),
    Metric("ttft_p99", "TTFT p99", ("latency.vllm:time_to_first_token_seconds.p99",), "low"),
)


class Choice(NamedTuple):
    """A chosen point: its row in the table of points (None: no point qualifies) and the choice in words."""

    row: int | None
    words: str


class Constraint(NamedTuple):
    """A column that must be at most or at least a limit."""

    column: str
    sign: Literal["<=", ">="]
    limit: float

    def holds(self, values: Floats) -> np.ndarray:
        """Which values satisfy it; NaN never does."""
        kept: np.ndarray = values <= self.limit if self.sign == "<=" else values >= self.limit
        return kept


@dataclass(frozen=True)
class SweepPoints:
    """The table of points with its parameters told apart from its figures.

    `parameters` are the configuration paths that take more than one value, seeds not among them.
    """

    points: pd.DataFrame
    parameters: tuple[str, ...]

    @classmethod
    def from_table(cls, points: pd.DataFrame, parameters: Sequence[str] | None = None) -> SweepPoints:
        """Take finished points; without `parameters`, configuration paths whose values differ are the parameters.

        Raises ResultsError for a named parameter that the table doesn't have.
        """
        if parameters is None:
            named = [c for c in points.columns if c.partition(".")[0] in CONFIG_ROOTS]
        else:
            named = [p for p in parameters if p not in SEEDS]
            lacking = [p for p in named if p not in points.columns]
            if lacking:
                raise ResultsError(f"the table of points has no column {', '.join(lacking)}")
        varying = tuple(p for p in named if p not in SEEDS and points[p].astype(str).nunique() > 1)
        finished = points
        if "status" in points.columns:
            finished = points[points["status"] == "finished"]
        return cls(finished.reset_index(drop=True), varying)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The figures of merit that the table has, by key; `columns` holds the one that is there."""
        found = {}
        for metric in METRICS:
            present = next((c for c in metric.columns if c in self.points.columns), None)
            if present is not None:
                found[metric.key] = metric._replace(columns=(present,))
        return found

    @cached_property
    def budget(self) -> str | None:
        """The parameter that is the memory budget, if one varies."""
        return next((b for b in BUDGETS if b in self.parameters), None)

    @cached_property
    def seeds(self) -> int:
        """How many seeds each point was run with, at most."""
        column = next((s for s in SEEDS if s in self.points.columns), None)
        return int(self.points[column].nunique()) if column else 1

    @cached_property
    def means(self) -> SweepPoints:
        """The same sweep with one row per point: figures are means over its seeds, the rest is its first row's."""
        if self.seeds < 2 or not len(self.points):
            return self
        import pandas as pd

        codes, _ = pd.factorize(pd.Series(self.keys))
        count = np.bincount(codes)
        _, first = np.unique(codes, return_index=True)
        table = self.points.iloc[first].reset_index(drop=True)
        averaged = {}
        for name in self.points.columns:
            values = self.points[name]
            plain = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
            if plain and name not in self.parameters and name not in SEEDS:
                averaged[name] = np.bincount(codes, weights=values.to_numpy(dtype=np.float64)) / count
        return SweepPoints(table.assign(**averaged), self.parameters)

    @cached_property
    def keys(self) -> list[str]:
        """For every row the parameters of its point as one text; rows that differ only in the seed have the same."""
        columns = [self.points[p].astype(str) for p in self.parameters]
        return ["\x1f".join(values) for values in zip(*columns, strict=True)] if columns else [""] * len(self.points)

    def values(self, metric: Metric) -> Floats:
        """The metric of every point; NaN where a point has none."""
        return numbers(self.points[metric.columns[0]])

    def memory(self) -> tuple[Floats, str] | None:
        """Size of the KV cache of every point and its unit ('bytes' or 'tokens'), as far as the table tells."""
        table = self.points
        stated = "memory.kv_cache_memory"
        if stated in table.columns:
            amount = numbers(table[stated])
            if amount.size and not np.isnan(amount).any():
                return amount, "bytes"
        blocks = next((c for c in ("num_gpu_blocks", *BUDGETS[1:3]) if c in table.columns), None)
        if blocks is not None and BLOCK_SIZE in table.columns:
            return numbers(table[blocks]) * numbers(table[BLOCK_SIZE]), "tokens"
        return None

    def describe(self, row: int) -> str:
        """The parameters of a point in words."""
        return ", ".join(f"{short_name(p)} {value_text(p, self.points[p].iloc[row])}" for p in self.parameters)


def numbers(column: pd.Series[Any]) -> Floats:
    """A column as floats: numbers as they are, sizes such as '40GiB' in bytes, anything else NaN."""
    return np.array([as_number(v) for v in column], dtype=np.float64)


def as_number(value: Any) -> float:
    """One value as a float; see `numbers`."""
    if isinstance(value, (bool, np.bool_)) or value is None:
        return float("nan")
    if isinstance(value, (int, float, np.integer, np.floating)):
        return float(value)
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?\d+)?)\s*([KMGT]?)(i?)B?\s*", str(value))
    if match is None:
        return float("nan")
    unit = BINARY_UNITS[match[2]]
    return float(match[1]) * (unit if match[3] or not match[2] else 1000 ** "BKMGT".index(match[2]))


def short_name(path: str) -> str:
    """The last part of a path, in words."""
    name = path.rpartition(".")[2]
    return SHORT_NAMES.get(name) or name.replace("_", " ")


def value_text(path: str, value: Any) -> str:
    """A parameter's value in words."""
    if isinstance(value, np.generic):
        value = value.item()
    return in_words(path, int(value) if isinstance(value, float) and value.is_integer() else value)


def ordered(column: pd.Series[Any]) -> list[Any]:
    """Distinct values, small to large where they are numbers, in order of appearance otherwise."""
    values = list(dict.fromkeys(column.tolist()))
    keys = [as_number(v) for v in values]
    if not any(np.isnan(k) for k in keys):
        return [v for _, v in sorted(zip(keys, values, strict=True), key=lambda pair: pair[0])]
    return values


def parse_constraint(text: str, columns: Sequence[str]) -> Constraint:
    """Read 'column<=number' or 'column>=number'.  Raises ResultsError naming what is wrong."""
    match = re.fullmatch(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+)\s*", text)
    if match is None:
        raise ResultsError(f"constraint {text!r}: write it as COLUMN<=NUMBER or COLUMN>=NUMBER")
    column, sign, limit = match.groups()
    check_column(column, columns)
    value = as_number(limit)
    if np.isnan(value):
        raise ResultsError(f"constraint {text!r}: {limit!r} is no number")
    return Constraint(column, "<=" if sign == "<=" else ">=", value)


def check_column(column: str, columns: Sequence[str]) -> None:
    """Raise ResultsError with the nearest names when the table has no such column."""
    if column not in columns:
        import difflib

        near = difflib.get_close_matches(column, list(columns), n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise ResultsError(f"the points have no figure {column!r}{hint}")


def best_point(sweep: SweepPoints, column: str, better: str, constraints: Sequence[Constraint] = ()) -> Choice:
    """The point with the best value of `column` ('high' or 'low' is better) among those that meet the constraints.

    Where there are several seeds, a point's figures are means over them, and the row is one of
    `sweep.means`.  Ties go to the smaller memory, then to the earlier point.
    """
    seeds = f" (means over {sweep.seeds} seeds)" if sweep.seeds > 1 else ""
    sweep = sweep.means
    values = numbers(sweep.points[column])
    allowed = ~np.isnan(values)
    for constraint in constraints:
        allowed &= constraint.holds(numbers(sweep.points[constraint.column]))
    limits = " and ".join(f"{c.column} {c.sign} {in_words(c.column, c.limit)}" for c in constraints)
    if not allowed.any():
        return Choice(None, f"No point has {limits}." if limits else f"No point has a {column}.")
    memory = sweep.memory()
    size = memory[0] if memory is not None else np.zeros(len(values))
    sign = -1.0 if better == "high" else 1.0
    candidates = np.flatnonzero(allowed)
    row = min(candidates.tolist(), key=lambda i: (sign * values[i], size[i] if size[i] == size[i] else np.inf, i))
    among = f" of the {candidates.size} points with {limits}" if limits else ""
    word = "highest" if better == "high" else "lowest"
    where = sweep.describe(row) or "the only point"
    return Choice(row, f"{where}: {in_words(column, float(values[row]))}, the {word}{among}{seeds}.")


def smallest_budget(sweep: SweepPoints, share: float = 0.9) -> Choice | None:
    """The smallest memory whose hit rate is at least `share` of the best; None when either is unknown.

    Figures are means over seeds; the row is one of `sweep.means`.
    """
    sweep = sweep.means
    memory, metric = sweep.memory(), sweep.metrics.get("hit_rate")
    if metric is None:
        return None
    if memory is not None:
        size, unit = memory
    elif sweep.budget is not None:
        size, unit = numbers(sweep.points[sweep.budget]), sweep.budget
    else:
        return None
    rates = sweep.values(metric)
    known = ~np.isnan(rates) & ~np.isnan(size)
    if not known.any() or np.unique(size[known]).size < 2:
        return None
    best = float(rates[known].max())
    enough = np.flatnonzero(known & (rates >= share * best))
    row = min(enough.tolist(), key=lambda i: (size[i], -rates[i]))
    words = (
        (
            f"{sweep.describe(row)} ({memory_text(size[row], unit)}): hit rate {in_words('rate', float(rates[row]))}, "
            f"{100 * rates[row] / best:.0f} % of the best ({in_words('rate', best)})."
        )
        if best > 0
        else "Nothing hit at any budget."
    )
    return Choice(row, words)


def memory_text(size: float, unit: str) -> str:
    """A size of KV cache in words."""
    if unit == "bytes":
        return in_words("bytes", size)
    if unit == "tokens":
        return f"{in_words('', size)} tokens of KV"
    return f"{short_name(unit)} {in_words(unit, size)}"


def pareto(cost: Floats, gain: Floats) -> np.ndarray:
    """Indices of the points that no other beats in both, by growing cost: less cost, or equal cost and more gain."""
    order = np.lexsort((-gain, cost))
    order = order[~np.isnan(cost[order]) & ~np.isnan(gain[order])]
    kept, best = [], -np.inf
    for index in order.tolist():
        if gain[index] > best:
            kept.append(index)
            best = float(gain[index])
    return np.array(kept, dtype=np.int64)
