"""`.plot` of results in a notebook: every figure of the report as one obvious call.

    results.plot.hit_rate_over_time()
    results.plot.ttft(ax=ax)

Without `ax` a figure of its own is made, which shows itself at the end of a cell; with `ax` the
figure is drawn there, in the notebook's own style.  Each call returns the axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sim.errors import ResultsError
from sim.report.figures import distributions, misses, sweep, timeline

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sim.report.picture import Picture


class Tables(Protocol):
    """Results of a run: tables as attributes of their names, or by `table`."""

    def table(self, name: str) -> pd.DataFrame:
        """The table of that name.  Raises ResultsError when it was not recorded."""


class RunPlots:
    """The figures of one run; `results` has its tables as attributes."""

    def __init__(self, results: Tables) -> None:
        self._results = results

    def __repr__(self) -> str:
        return f"figures: {', '.join(n for n in dir(self) if not n.startswith('_'))}"

    def _draw(self, picture: Picture, ax: Axes | None) -> Axes:
        """Raises ResultsError for a table or column that the run did not record."""
        tables: list[pd.DataFrame | None] = []
        for name, columns in picture.needs.items():
            table = self._table(name)
            lacking = [c for c in columns if c not in table.columns and not c.endswith("?")]
            if lacking:
                raise ResultsError(f"{picture.name}: the table {name!r} has no column {', '.join(lacking)}")
            tables.append(table)
        for name in picture.welcome:
            try:
                tables.append(self._table(name))
            except ResultsError:  # it was not recorded; the figure does without
                tables.append(None)
        return picture.plot(*tables, ax=ax)

    def _table(self, name: str) -> pd.DataFrame:
        found = getattr(self._results, name, None)
        table: pd.DataFrame = self._results.table(name) if found is None else found
        return table

    def hit_rate_over_time(self, ax: Axes | None = None) -> Axes:
        """Prefix-cache hit rate per interval and since the start; preemptions marked."""
        return self._draw(timeline.HIT_RATE, ax)

    def kv_usage_over_time(self, ax: Axes | None = None) -> Axes:
        """Share of the KV blocks that requests hold; preemptions marked."""
        return self._draw(timeline.KV_USAGE, ax)

    def requests_in_system(self, ax: Axes | None = None) -> Axes:
        """Requests running and waiting over time."""
        return self._draw(timeline.REQUESTS, ax)

    def evictions_over_time(self, ax: Axes | None = None) -> Axes:
        """Evicted blocks per second, by whether they had served a hit."""
        return self._draw(timeline.EVICTIONS, ax)

    def tokens_computed(self, ax: Axes | None = None) -> Axes:
        """Prompt and decode tokens computed per second."""
        return self._draw(timeline.WORK, ax)

    def block_lifetime(self, ax: Axes | None = None) -> Axes:
        """Distribution of the time from allocation to eviction."""
        return self._draw(distributions.LIFETIME, ax)

    def idle_before_eviction(self, ax: Axes | None = None) -> Axes:
        """Distribution of the time from last use to eviction."""
        return self._draw(distributions.IDLE, ax)

    def ttft(self, ax: Axes | None = None) -> Axes:
        """Distribution of the time to first token."""
        return self._draw(distributions.TTFT, ax)

    def end_to_end(self, ax: Axes | None = None) -> Axes:
        """Distribution of the time from arrival to the last token."""
        return self._draw(distributions.E2E, ax)

    def tpot(self, ax: Axes | None = None) -> Axes:
        """Distribution of the time per output token."""
        return self._draw(distributions.TPOT, ax)

    def inter_token(self, ax: Axes | None = None) -> Axes:
        """Distribution of the time between two tokens of a request."""
        return self._draw(distributions.ITL, ax)

    def queue_time(self, ax: Axes | None = None) -> Axes:
        """Distribution of the time from arrival to the first scheduling."""
        return self._draw(distributions.QUEUE, ax)

    def miss_causes_over_time(self, ax: Axes | None = None) -> Axes:
        """Missed full blocks per second by cause; needs the table of misses."""
        return self._draw(misses.OVER_TIME, ax)

    def miss_causes_by_category(self, ax: Axes | None = None) -> Axes:
        """Causes of missed full blocks by category; needs the table of misses."""
        return self._draw(misses.BY_CATEGORY, ax)

    def regret_by_depth(self, ax: Axes | None = None) -> Axes:
        """Tokens computed again per eviction, by depth of the block; needs the cost of evictions."""
        return self._draw(misses.REGRET_BY_DEPTH, ax)

    def regret_by_age(self, ax: Axes | None = None) -> Axes:
        """Tokens computed again per eviction, by age of the block; needs the cost of evictions."""
        return self._draw(misses.REGRET_BY_AGE, ax)


class SweepPlots:
    """The figures of a sweep, from its table of points."""

    def __init__(self, points: pd.DataFrame) -> None:
        self._points = points

    def heat_map(
        self, metric: str = "hit_rate", ax: Axes | None = None, axes: tuple[str, str] | None = None
    ) -> Axes:  # fmt: skip
        """A metric over two parameters: 'hit_rate', 'evictions', 'preemptions', 'ttft_p99'."""
        return sweep.heat_map(self._points, metric, ax, axes)

    def lines(
        self, metric: str = "hit_rate", across: str | None = None, by: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """A metric over one parameter, a line for each value of another, with bands over seeds."""
        return sweep.lines(self._points, metric, across, by, ax)

    def hit_rate_against_memory(self, ax: Axes | None = None, share: float = 0.9) -> Axes:
        """Hit rate against the size of the cache, the front, and the smallest budget that keeps `share` of the best."""
        return sweep.hit_rate_against_memory(self._points, ax, share)
