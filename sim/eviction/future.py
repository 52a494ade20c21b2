"""The future of a workload whose requests are all known beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sim.core.block import BlockKey


class KnownFuture:
    """Which request wants a key next, from the keys of all requests in the order in which they are served.

    A request's blocks count as wanted one after another, so of two blocks for the same request the later one is
    wanted later.  Requests may be served a little out of order; one that has been served wants nothing any more.

    Args:
        requests: per request, by index, the keys that it will look up, front to back.
    """

    def __init__(self, requests: Iterable[Sequence[BlockKey]]) -> None:
        self._uses: dict[BlockKey, list[tuple[int, int]]] = {}
        for index, keys in enumerate(requests):
            for place, key in enumerate(keys):
                self._uses.setdefault(key, []).append((index, place))
        for uses in self._uses.values():
            uses.reverse()
        self._served: set[int] = set()

    def advance(self, index: int) -> None:
        """The request with this index is being served."""
        self._served.add(index)

    def next_use(self, key: BlockKey) -> float:
        """Request and place as one number, growing with both; infinity for never."""
        uses = self._uses.get(key)
        while uses and uses[-1][0] in self._served:
            uses.pop()
        if not uses:
            return math.inf
        index, place = uses[-1]
        return index + place / (1 << 24)
