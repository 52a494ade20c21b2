"""Belady's optimum: which accesses hit when the block wanted again last is the one to go.

The policy is MIN (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
Systems Journal 5(2), 1966): every accessed block enters the cache, and the victim is the one whose
next use lies farthest ahead.  No policy that decides block by block hits more at the same capacity.

Only blocks that come again need watching: a block without a future is always the next victim.  They
come in *runs* (see `sim.analysis.stack_distance`), so whole slices of requests are kept and dropped
at once, with the same outcome as block by block.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray
from sim.analysis.stack_distance import ReuseRuns, reuse_runs


def peak_live_blocks(accesses: Accesses) -> int:
    """The capacity from which on the optimum hits all that an infinite cache would: the most blocks alive at once.

    A block is alive between two accesses to it; the block just accessed takes a place, too.
    """
    if not len(accesses):
        return 0
    has_next = accesses.following < len(accesses)
    ends = accesses.previous >= 0
    alive_after = np.cumsum(has_next.astype(np.int64) - ends)
    # while t is accessed: the blocks alive across it, and itself
    return int((alive_after - has_next).max()) + 1


class Optimum:
    """MIN on one workload, at any capacity.

    Example:
        >>> from sim.analysis.accesses import accesses_from_keys
        >>> Optimum(accesses_from_keys([[0], [1], [0], [1]])).hits(1).tolist()
        [False, False, False, False]
    """

    def __init__(self, accesses: Accesses, runs: ReuseRuns | None = None) -> None:
        runs = runs or reuse_runs(accesses)
        self._accesses = accesses
        self.peak = peak_live_blocks(accesses)
        # per request, in order of position: (end, request that wants it next, or 0 for none)
        self._futures: list[list[tuple[int, int]]] = [[] for _ in range(accesses.num_requests)]
        # the runs as their sources see them: by source, then position
        for index in np.lexsort((runs.low, runs.source)).tolist():
            self._futures[int(runs.source[index])].append((int(runs.high[index]), int(runs.request[index])))
        for futures, size in zip(self._futures, np.diff(accesses.starts).tolist(), strict=True):
            if size and (not futures or futures[-1][0] < size):
                futures.append((size, 0))

    def hits(self, capacity: int) -> BoolArray:
        """Whether each access hits in a cache of `capacity` blocks (≥ 1).  O(runs · log runs)."""
        if capacity >= self.peak:
            return self._accesses.previous >= 0
        hit = np.zeros(len(self._accesses), dtype=np.bool_)
        starts = self._accesses.starts.tolist()
        # a kept slice [low, high) of the request that will want it; `low` rises as it is used, `high` falls as its
        # tail is evicted.  Slices of one request never overlap, so their order in the heap stays right.
        pending: list[list[list[int]]] = [[] for _ in self._futures]
        heap: list[tuple[int, int, list[int]]] = []
        free = capacity

        def keep(wanted_by: int, low: int, high: int) -> list[int]:
            piece = [low, high]
            pending[wanted_by].append(piece)
            heappush(heap, (-wanted_by, -high, piece))
            return piece

        for request, futures in enumerate(self._futures):
            kept = sorted(pending[request])
            pending[request] = []
            offset = starts[request]
            at = 0
            next_kept = 0
            for end, wanted_by in futures:
                while at < end:
                    while next_kept < len(kept) and kept[next_kept][0] >= kept[next_kept][1]:
                        next_kept += 1
                    piece = kept[next_kept] if next_kept < len(kept) else None
                    if piece is not None and piece[0] == at:
                        stop = min(end, piece[1])
                        hit[offset + at : offset + stop] = True
                        piece[0] = stop
                        if wanted_by:
                            keep(wanted_by, at, stop)
                        else:
                            free += stop - at
                        at = stop
                        continue
                    stop = end if piece is None else min(end, piece[0])
                    if not wanted_by:
                        if free == 0:
                            _drop(heap, 1)
                            free = 1
                        at = stop
                        continue
                    entering = min(free, stop - at)
                    free -= entering
                    low, at = at, at + entering
                    while at < stop:
                        farthest, highest = _farthest(heap)
                        if farthest > wanted_by or (farthest == wanted_by and highest > at):
                            at += _drop(heap, stop - at)
                            continue
                        if at == low:  # all that is kept is nearer than what comes in, but one place must be given
                            _drop(heap, 1)
                            at += 1
                        break
                    if at == stop:
                        keep(wanted_by, low, at)
                        continue
                    # the farthest is now the block that came in last: each one replaces the one before it
                    if at - 1 > low:
                        keep(wanted_by, low, at - 1)
                    keep(wanted_by, stop - 1, stop)
                    at = stop
        return hit


def _farthest(heap: list[tuple[int, int, list[int]]]) -> tuple[int, int]:
    """The request that wants the farthest kept block and the end of its slice; (-1, 0) when nothing is kept."""
    while heap and heap[0][2][0] >= heap[0][2][1]:
        heappop(heap)
    return (-heap[0][0], heap[0][2][1]) if heap else (-1, 0)


def _drop(heap: list[tuple[int, int, list[int]]], most: int) -> int:
    """Evict up to `most` blocks from the tail of the farthest slice; returns how many."""
    _farthest(heap)
    piece = heap[0][2]
    count = min(most, piece[1] - piece[0])
    piece[1] -= count
    return count
