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

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray
from sim.analysis.stack_distance import ReuseRuns, mark, reuse_runs


def peak_live_blocks(accesses: Accesses, *, may_bypass: bool = False) -> int:
    """The capacity from which on the optimum hits all that an infinite cache would: the most blocks alive at once.

    A block is alive between two accesses to it; without `may_bypass` the block just accessed takes a place, too.
    """
    if not len(accesses):
        return 0
    has_next = (accesses.following < len(accesses)).astype(np.int64)
    alive_after = np.cumsum(has_next - (accesses.previous >= 0))
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
        self._offsets = accesses.starts[:-1].tolist()
        self.peak = peak_live_blocks(accesses, may_bypass=may_bypass)
        # per request, in order of position: (end, request that wants it next, or 0 for none)
        self._futures: list[list[tuple[int, int]]] = [[] for _ in range(accesses.num_requests)]
        for index in np.lexsort((runs.low, runs.source)).tolist():
            self._futures[int(runs.source[index])].append((int(runs.high[index]), int(runs.request[index])))
        for futures, size in zip(self._futures, np.diff(accesses.starts).tolist(), strict=True):
            if size and (not futures or futures[-1][0] < size):
                futures.append((size, 0))

    def hits(self, capacity: int) -> BoolArray:
        """Whether each access hits in a cache of `capacity` blocks (≥ 1).  O(runs · log runs)."""
        if capacity >= self.peak:
            return self._accesses.previous >= 0
        begins: list[int] = []
        ends: list[int] = []
        kept = _Kept(capacity)
        lows, highs, keep = kept.low, kept.high, kept.keep
        forced = not self._may_bypass
        for futures, offset, mine in zip(self._futures, self._offsets, kept, strict=False):
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
        return mark(len(self._accesses), begins, ends)


class _Kept:
    """Slices ``[low, high)`` of requests' blocks that are kept for the request that wants them.

    A slice's `low` rises as it is used, its `high` falls as its tail is evicted.  Slices for one request never
    overlap, so the order of their first `high` in the heap stays right.  Iterating gives for request 0, 1, … the
    slices that are kept for it when its turn comes, the first block's last.
    """

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self.low: list[int] = []
        self.high: list[int] = []
        self._for: dict[int, list[int]] = {}
        self._heap: list[tuple[int, int, int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        for request in count():
            mine = self._for.pop(request, [])
            if len(mine) > 1:
                mine.sort(key=self.low.__getitem__, reverse=True)
            yield mine

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
        self._farthest()
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
