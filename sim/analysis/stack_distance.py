"""Reuse runs and LRU stack depths: the hit rates of LRU at every capacity from one pass.

A *stack* policy with more room holds all that it holds with less, so each access has a *depth*: the
smallest capacity at which it hits (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for
storage hierarchies", IBM Systems Journal 9(2), 1970).

Keys are chained, so the blocks that request r finds where request p left them are neighbours: a
*run*.  Blocks of a run move together, and the work is per run, of which a trace has far fewer than
accesses: O(runs · log requests), and the same depth for a whole run under plain LRU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray, Int32Array, IntArray


@dataclass(frozen=True)
class ReuseRuns:
    """Blocks ``[low, high)`` of request `request`, last accessed before by request `source` (arrays, one entry a run).

    Sorted by request, then by `low`; within a request `source` never grows, and the runs leave no gap from block 0 on.
    """

    request: IntArray
    low: IntArray
    high: IntArray
    source: IntArray


def reuse_runs(accesses: Accesses) -> ReuseRuns:
    """Cut the repeated accesses into runs."""
    # -1, for no access before, is the entry too many
    source = np.append(accesses.request, np.int32(-1))[accesses.previous]
    edge = source[1:] != source[:-1]
    edge |= accesses.request[1:] != accesses.request[:-1]
    first = np.append(0, np.flatnonzero(edge) + 1) if len(source) else np.empty(0, dtype=np.int64)
    length = np.diff(np.append(first, len(source)))
    found = source[first] >= 0
    first, length = first[found], length[found]
    low = accesses.position[first].astype(np.int64)
    return ReuseRuns(accesses.request[first].astype(np.int64), low, low + length, source[first].astype(np.int64))


def mark(size: int, begins: Sequence[int] | IntArray, ends: Sequence[int] | IntArray) -> BoolArray:
    """A mask of `size` that is true in every ``[begin, end)``; the ranges don't overlap."""
    begin, end = np.asarray(begins, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    some = begin < end  # of these, no two begin at one place and no two end at one
    edges = np.zeros(size + 1, dtype=np.int8)
    edges[begin[some]] += 1
    edges[end[some]] -= 1
    return np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)


def lru_depths(accesses: Accesses, runs: ReuseRuns | None = None) -> Int32Array:
    """Depth of each access under plain LRU, the blocks of a request touched front to back; 0 = never seen before.

    An access hits in a cache of C blocks if and only if ``0 < depth <= C``.
    """
    runs = runs or reuse_runs(accesses)
    depth = _run_depths(accesses, runs, tail_first=False)
    return _spread(accesses, runs, depth, slope=0)


def lru_tail_first_depths(accesses: Accesses, runs: ReuseRuns | None = None) -> Int32Array:
    """Depth of each access under the reference's order; 0 = never seen before.

    A request looks its blocks up, takes the rest from the front of the queue, and puts all of them back last to
    first, so that the head of a chain outlives its tail.  A request larger than the cache leaves its head there.
    """
    runs = runs or reuse_runs(accesses)
    depth = _run_depths(accesses, runs, tail_first=True)
    return _spread(accesses, runs, depth, slope=1)


def _run_depths(accesses: Accesses, runs: ReuseRuns, *, tail_first: bool) -> IntArray:
    """Depth of the first block of each run.

    Before r's run [low, high) of source p is touched, the blocks last used by p are its blocks from `low` on.
    Front to back, above block i lie: i blocks of r, those of the requests after p, and p's blocks behind i;
    the sum does not depend on i.  Tail first, above it lie the requests after p, and p's blocks before i.

    The blocks last used by some requests are all of theirs, less those that requests before r found there; the
    blocks of r's own runs before this one cancel out.
    """
    taken = _sums_before(runs, later=tail_first)
    if tail_first:
        return accesses.starts[runs.request] - accesses.starts[runs.source + 1] - taken + 1
    return accesses.starts[runs.request] - accesses.starts[runs.source] - taken


def _sums_before(runs: ReuseRuns, *, later: bool) -> IntArray:
    """For each run the blocks of all runs of earlier requests whose source is the same or a later one.

    `later`: only a later one.  Two requests differ at one bit first, so bit by bit the runs are sorted by source among
    those whose requests are alike above the bit, and those without the bit are summed up for those with it.
    """
    sums = np.zeros(len(runs.request), dtype=np.int64)
    last = int(runs.request.max(initial=0))
    blocks = runs.high - runs.low
    for bit in range(last.bit_length()):
        has_bit = runs.request >> bit & 1
        alike = runs.request >> bit + 1
        # latest source first; among equal sources, who is to be counted stands before those who count
        order = np.argsort((alike * (last + 1) + (last - runs.source)) * 2 + (1 - has_bit if later else has_bit))
        counted = np.where(has_bit, 0, blocks)[order]
        so_far = np.cumsum(counted)
        first = np.flatnonzero(np.diff(alike[order], prepend=-1))
        so_far -= np.repeat(so_far[first] - counted[first], np.diff(first, append=len(order)))
        sums[order] += has_bit[order] * so_far
    return sums


def _spread(accesses: Accesses, runs: ReuseRuns, depth: IntArray, slope: int) -> Int32Array:
    """Depth per access from the depth of each run's first block."""
    begin = accesses.starts[runs.request] + runs.low
    length = runs.high - runs.low
    # every run, with what lies before it since the run before
    gaps = np.append(begin, len(accesses)) - np.append(0, begin + length)
    lengths = np.empty(2 * len(begin) + 1, dtype=np.int64)
    lengths[0::2], lengths[1::2] = gaps, length
    values = np.zeros(len(lengths), dtype=np.int32)
    values[1::2] = depth - slope * runs.low
    result = np.repeat(values, lengths)
    if slope:
        inside = np.zeros(len(lengths), dtype=np.bool_)
        inside[1::2] = True
        result += slope * accesses.position * np.repeat(inside, lengths)
    return result
