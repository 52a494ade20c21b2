"""Prefix-cache statistics, as the engine logs them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class PrefixCacheStats:
    """Counts of one step, in tokens; requests that had been preempted before are kept apart."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """One request was admitted: it asked for `num_tokens` and found `num_hits`."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


class PrefixCachingMetrics:
    """Hit rate over the most recent requests.

    Observations are dropped, oldest first, while more than `interval` requests are counted; the newest
    always stays.
    """

    def __init__(self, interval: int = 1000) -> None:
        self.interval = interval
        self._clear()

    def _clear(self) -> None:
        self._window: deque[tuple[int, int, int]] = deque()
        self._requests = 0
        self._queries = 0
        self._hits = 0

    def observe(self, stats: PrefixCacheStats) -> None:
        """Take in the counts of a step.  `stats.reset` clears first; a step without requests changes nothing."""
        if stats.reset:
            self._clear()
        if stats.requests == 0:
            return
        self._window.append((stats.requests, stats.queries, stats.hits))
        self._requests += stats.requests
        self._queries += stats.queries
        self._hits += stats.hits
        while len(self._window) > 1 and self._requests > self.interval:
            requests, queries, hits = self._window.popleft()
            self._requests -= requests
            self._queries -= queries
            self._hits -= hits

    @property
    def hit_rate(self) -> float:
        """Hit tokens / queried tokens over the window; 0.0 when nothing was queried."""
        return self._hits / self._queries if self._queries else 0.0
