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

from functools import cached_property
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
        self._sizes = np.diff(accesses.starts).tolist()
        # per request, in order of position: (end, request that wants the blocks up to there next); soonest first,
        # since who wants a block wants all before it
        self._wanted: list[list[tuple[int, int]]] = [[] for _ in self._sizes]
        order = np.lexsort((runs.low, runs.source))
        columns = (runs.source[order].tolist(), runs.high[order].tolist(), runs.request[order].tolist())
        for source, high, request in zip(*columns, strict=True):
            self._wanted[source].append((high, request))
        found_before = np.zeros(accesses.num_requests, dtype=np.int64)
        np.maximum.at(found_before, runs.request, runs.high)
        self._found_before = found_before.tolist()
        self._head = common_head(accesses, runs)

    def hits(self, capacity: int) -> BoolArray:
        """Whether each access hits in a cache of `capacity` blocks (≥ 1).  O(runs · log runs)."""
        if capacity >= self.peak:
            return self._accesses.previous >= 0
        if capacity > self._head > 0:
            found = self._solve(self._short, capacity - self._head, exact=False)
            if found is not None:
                found |= self._in_head
                return found
        found = self._solve(self._plain, capacity, exact=True)
        assert found is not None
        return found

    @cached_property
    def _plain(self) -> list[_Visit]:
        return self._visits(0)

    @cached_property
    def _short(self) -> list[_Visit]:
        return self._visits(self._head)

    @cached_property
    def _in_head(self) -> BoolArray:
        """The accesses to the common head but for the first request's."""
        return (self._accesses.position < self._head) & (self._accesses.request > 0)

    def _visits(self, head: int) -> list[_Visit]:
        """What the requests do to a cache behind their first `head` blocks, requests that only push counted once."""
        visits: list[_Visit] = []
        only_pushed = False
        rows = zip(self._accesses.starts.tolist(), self._sizes, self._wanted, self._found_before, strict=False)
        for request, (start, size, futures, found) in enumerate(rows):
            wanted = [(end - head, by) for end, by in futures if end > head] if head else futures
            if not wanted and found <= head:
                if size <= head or self._may_bypass or only_pushed:
                    continue
                only_pushed = True
            else:
                only_pushed = False
            visits.append(_Visit(request, start + head, wanted, (wanted[-1][0] if wanted else 0) < size - head))
        return visits

    def _solve(self, visits: list[_Visit], capacity: int, *, exact: bool) -> BoolArray | None:
        """The hits; None if not `exact` and a block that the current request itself still wants had to go."""
        begins: list[int] = []
        ends: list[int] = []
        kept = _Kept(capacity, len(self._sizes))
        slices, keep = kept.slices, kept.keep
        forced = not self._may_bypass
        for request, offset, wanted, has_rest in visits:
            kept.request = request
            mine = slices[request]
            at = 0
            for end, wanted_by in wanted:
                while at < end:
                    if mine and mine[-1][0] == at:
                        stop = mine[-1][1]
                        if stop <= end:
                            mine.pop()
                        else:
                            mine[-1][0] = stop = end
                        begins.append(offset + at)
                        ends.append(offset + stop)
                        keep(wanted_by, at, stop)
                    else:
                        stop = min(mine[-1][0], end) if mine else end
                        if stop - at <= kept.free:
                            keep(wanted_by, at, stop)
                            kept.free -= stop - at
                        else:
                            kept.enter(wanted_by, at, stop, forced)
                    at = stop
            if forced:
                if has_rest and kept.free == 0 and not (mine and mine[-1][0] == at):
                    kept.drop(1)
                if kept.dropped_own and not exact:
                    return None
            if mine:
                for low, high in mine:
                    begins.append(offset + low)
                    ends.append(offset + high)
                    kept.free += high - low
                mine.clear()
        return mark(len(self._accesses), begins, ends)


class _Visit(NamedTuple):
    """One request: where its first block stands, who wants its blocks next, and whether others follow behind these."""

    request: int
    offset: int
    wanted: list[tuple[int, int]]
    has_rest: bool


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

    A slice's `low` rises as it is used, its `high` falls as its tail is evicted.  `slices` has those of each request,
    the last blocks first; none is empty and none overlap.
    """

    def __init__(self, capacity: int, requests: int) -> None:
        self.free = capacity
        self.request = 0
        self.dropped_own = False
        self.slices: list[list[list[int]]] = [[] for _ in range(requests)]
        self._farthest: list[int] = []  # a heap of -r, for each request r with slices and perhaps more

    def keep(self, wanted_by: int, low: int, high: int) -> None:
        """Keep blocks ``[low, high)``, not none; `free` is the caller's to mind."""
        slices = self.slices[wanted_by]
        if not slices:
            slices.append([low, high])
            heappush(self._farthest, -wanted_by)
            return
        at = len(slices)
        while at and slices[at - 1][0] < low:
            at -= 1
        if at < len(slices) and slices[at][1] == low:
            slices[at][1] = high
        else:
            slices.insert(at, [low, high])

    def drop(self, most: int) -> int:
        """Evict up to `most` blocks from the tail of the farthest slice; returns how many."""
        farthest = self.farthest()
        if farthest == self.request:
            self.dropped_own = True
        last = self.slices[farthest][0]
        size = min(most, last[1] - last[0])
        last[1] -= size
        if last[0] == last[1]:
            del self.slices[farthest][0]
        self.free += size
        return size

    def enter(self, wanted_by: int, low: int, stop: int, forced: bool) -> None:
        """Blocks ``[low, stop)`` of the current request missed, `wanted_by` wants them, and not all have room.

        They come in one by one, each in place of the farthest.  `forced`: each must come in.
        """
        at = low + self.free
        while at < stop:
            farthest = self.farthest()
            if farthest < wanted_by or (farthest == wanted_by and self.slices[farthest][0][1] <= at):
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

    def farthest(self) -> int:
        """The request that wants the farthest kept block; -1 when nothing is kept."""
        heap, slices = self._farthest, self.slices
        while heap and not slices[-heap[0]]:
            heappop(heap)
        return -heap[0] if heap else -1
