"""The optimum: which accesses hit when the block wanted again last is the one to go.

`Optimum` has two forms.  *MIN* (Belady, "A study of replacement algorithms for a virtual-storage
computer", IBM Systems Journal 5(2), 1966): every accessed block enters the cache, and the victim is
the one whose next use lies farthest ahead.  With `may_bypass`, the accessed block itself may be the
one to go, which hits a little more where the cache is small: no cache of that capacity hits more,
whatever it decides, one that leaves the end of a long request out included.

Only blocks that come again need watching: a block without a future is always the next victim.  They
come in *runs* (see `sim.analysis.stack_distance`), so whole slices of requests are kept and dropped
at once, with the same outcome as block by block.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray
from sim.analysis.stack_distance import ReuseRuns, mark, reuse_runs


def peak_live_blocks(accesses: Accesses, *, may_bypass: bool = False) -> int:
    """The capacity from which on the optimum hits all that an infinite cache would: the most blocks alive at once.

    A block is alive between two accesses to it; without `may_bypass` the block just accessed takes a place, too.
    """
    if not len(accesses):
        return 0
    has_next = accesses.has_next.view(np.int8)
    alive_after = np.cumsum(has_next - (accesses.previous >= 0).view(np.int8), dtype=np.int32)
    return int(alive_after.max() if may_bypass else (alive_after - has_next).max() + 1)


class Optimum:
    """The optimum on one workload, at any capacity.

    Args:
        accesses: the workload; its future is known.
        runs: its `reuse_runs`, if they are at hand.
        may_bypass: an accessed block need not enter the cache.

    Attributes:
        peak: from this capacity on, it hits what an infinite cache hits.

    Example:
        >>> from sim.analysis.accesses import accesses_from_keys
        >>> thrash = accesses_from_keys([[0], [1], [0], [1]])
        >>> int(Optimum(thrash).hits(1).sum()), int(Optimum(thrash, may_bypass=True).hits(1).sum())
        (0, 1)
    """

    def __init__(self, accesses: Accesses, runs: ReuseRuns | None = None, *, may_bypass: bool = False) -> None:
        runs = runs or reuse_runs(accesses)
        self._accesses = accesses
        self._may_bypass = may_bypass
        self.peak = peak_live_blocks(accesses, may_bypass=may_bypass)
        # per request, in order of position: (end, request that wants it next, or 0 for none)
        futures: list[list[tuple[int, int]]] = [[] for _ in range(accesses.num_requests)]
        order = np.lexsort((runs.low, runs.source))
        columns = (runs.source[order].tolist(), runs.high[order].tolist(), runs.request[order].tolist())
        for source, high, request in zip(*columns, strict=True):
            futures[source].append((high, request))
        for row, size in zip(futures, np.diff(accesses.starts).tolist(), strict=True):
            if size and (not row or row[-1][0] < size):
                row.append((size, 0))
        self._futures = futures
        self._found_before = np.zeros(accesses.num_requests, dtype=np.int64)
        np.maximum.at(self._found_before, runs.request, runs.high)
        self._head = common_head(accesses, runs)
        self._plain = self._visits(0)
        self._short = self._visits(self._head) if self._head else self._plain

    def hits(self, capacity: int) -> BoolArray:
        """Whether each access hits in a cache of `capacity` blocks (≥ 1).  O(runs · log runs)."""
        if capacity >= self.peak:
            return self._accesses.previous >= 0
        if capacity > self._head > 0:
            found = self._solve(self._short, capacity - self._head, exact=False)
            if found is not None:
                found |= (self._accesses.position < self._head) & (self._accesses.request > 0)
                return found
        found = self._solve(self._plain, capacity, exact=True)
        assert found is not None
        return found

    def _visits(self, head: int) -> list[_Visit]:
        """What the requests do to a cache behind their first `head` blocks, requests that only push counted once."""
        visits: list[_Visit] = []
        continues = (self._found_before > head).tolist()
        for request, (start, futures) in enumerate(zip(self._accesses.starts.tolist(), self._futures, strict=False)):
            rest = [(end - head, wanted_by) for end, wanted_by in futures if end > head]
            if head and not continues[request] and len(rest) <= 1 and not (rest and rest[0][1]):
                if rest and not self._may_bypass and not (visits and visits[-1].futures is None):
                    visits.append(_Visit(request, 0, None))
            elif rest:
                visits.append(_Visit(request, start + head, rest))
        return visits

    def _solve(self, visits: list[_Visit], capacity: int, *, exact: bool) -> BoolArray | None:
        """The hits; None if not `exact` and a block that the current request itself still wants had to go."""
        begins: list[int] = []
        ends: list[int] = []
        kept = _Kept(capacity)
        lows, highs, keep = kept.low, kept.high, kept.keep
        forced = not self._may_bypass
        for request, offset, futures in visits:
            if futures is None:
                if kept.free == 0:
                    kept.drop(1)
                continue
            kept.request = request
            mine = kept.take(request)
            at = 0
            for end, wanted_by in futures:
                while at < end:
                    while mine and lows[mine[-1]] >= highs[mine[-1]]:
                        mine.pop()
                    begin = at
                    if mine and lows[mine[-1]] == at:
                        at = min(end, highs[mine[-1]])
                        begins.append(offset + begin)
                        ends.append(offset + at)
                        lows[mine[-1]] = at
                        if wanted_by:
                            keep(wanted_by, begin, at)
                        else:
                            kept.free += at - begin
                        continue
                    at = min(end, lows[mine[-1]]) if mine else end
                    if not wanted_by:
                        if forced and kept.free == 0:
                            kept.drop(1)
                    elif at - begin <= kept.free:
                        keep(wanted_by, begin, at)
                        kept.free -= at - begin
                    else:
                        kept.enter(wanted_by, begin, at, forced)
            if kept.dropped_own and not exact:
                return None
        return mark(len(self._accesses), begins, ends)


class _Visit(NamedTuple):
    """One request: where its first block stands, and who wants its blocks next; None if it only pushes."""

    request: int
    offset: int
    futures: list[tuple[int, int]] | None


def common_head(accesses: Accesses, runs: ReuseRuns) -> int:
    """How many blocks all requests begin with alike.

    The optimum keeps these for ever, and what else it keeps is as if they were not there and the cache smaller by as
    much; with one exception: when all that is left to evict is wanted by the current request itself, they would go.
    """
    if accesses.num_requests < 2:
        return 0
    head = np.zeros(accesses.num_requests, dtype=np.int64)
    first = (runs.low == 0) & (runs.source == runs.request - 1)
    head[runs.request[first]] = runs.high[first]
    return int(head[1:].min())


class _Kept:
    """Slices ``[low, high)`` of requests' blocks that are kept for the request that wants them.

    A slice's `low` rises as it is used, its `high` falls as its tail is evicted.  Slices for one request never
    overlap, so the order of their first `high` in the heap stays right.
    """

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self.request = 0
        self.dropped_own = False
        self.low: list[int] = []
        self.high: list[int] = []
        self._for: dict[int, list[int]] = {}
        self._heap: list[tuple[int, int, int]] = []

    def take(self, request: int) -> list[int]:
        """The slices that are kept for this request, whose turn it is, the first block's last."""
        mine = self._for.pop(request, [])
        if len(mine) > 1:
            mine.sort(key=self.low.__getitem__, reverse=True)
        return mine

    def keep(self, wanted_by: int, low: int, high: int) -> None:
        """Keep blocks ``[low, high)``, not none; `free` is the caller's to mind."""
        index = len(self.low)
        self.low.append(low)
        self.high.append(high)
        if wanted_by in self._for:
            self._for[wanted_by].append(index)
        else:
            self._for[wanted_by] = [index]
        heappush(self._heap, (-wanted_by, -high, index))

    def drop(self, most: int) -> int:
        """Evict up to `most` blocks from the tail of the farthest slice; returns how many."""
        farthest, _ = self._farthest()
        if farthest == self.request:
            self.dropped_own = True
        index = self._heap[0][2]
        size = min(most, self.high[index] - self.low[index])
        self.high[index] -= size
        self.free += size
        return size

    def enter(self, wanted_by: int, low: int, stop: int, forced: bool) -> None:
        """Blocks ``[low, stop)`` of the current request missed, `wanted_by` wants them, and not all have room.

        They come in one by one, each in place of the farthest.  `forced`: each must come in.
        """
        at = low + self.free
        while at < stop:
            farthest, highest = self._farthest()
            if farthest < wanted_by or (farthest == wanted_by and highest <= at):
                break
            at += self.drop(stop - at)
        if at < stop and forced:
            # what is kept is nearer than what comes in; one place must be given all the same, and from then on each
            # block that comes in replaces the one before it
            if at == low:
                self.drop(1)
                at += 1
            self.keep(wanted_by, stop - 1, stop)
            if low < at - 1:
                self.keep(wanted_by, low, at - 1)
        elif low < at:
            self.keep(wanted_by, low, at)
        self.free -= at - low

    def _farthest(self) -> tuple[int, int]:
        """The request that wants the farthest kept block and the end of its slice; (-1, 0) when nothing is kept."""
        heap = self._heap
        while heap:
            index = heap[0][2]
            if self.low[index] < self.high[index]:
                return -heap[0][0], self.high[index]
            heappop(heap)
        return -1, 0
