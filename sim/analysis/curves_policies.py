"""The policies that capacity curves know by name, and how each is computed.

Textbook policies (`lru`, `fifo`, `lfu`, `belady`) see one block after another.  All others are free
queues of `sim.eviction`, run through a pool that serves one request at a time; `queue:NAME` asks for
the free queue where a textbook policy has the name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sim.analysis.accesses import Accesses, BoolArray, Int32Array
from sim.analysis.curves_optimum import Optimum
from sim.analysis.curves_textbook import Fifo, lfu_hits
from sim.analysis.stack_distance import ReuseRuns, lru_depths, lru_tail_first_depths


class PolicyRun(NamedTuple):
    """A policy on one workload.

    `hits(capacity)` is the mask of accesses that hit; `hits_many`, where there is one, gives the masks of several
    capacities sooner than one by one.  `depths` is set for stack policies: the smallest capacity at
    which each access hits (0 = none).  `saturated_at` is set where hits grow with capacity and are known to be all
    that is possible from there on.
    """

    hits: Callable[[int], BoolArray]
    depths: Int32Array | None = None
    saturated_at: int | None = None
    hits_many: Callable[[Sequence[int]], list[BoolArray]] | None = None


class CurvePolicy(NamedTuple):
    """A policy by name: what it is, and how it is run on a workload with a seed."""

    name: str
    summary: str
    prepare: Callable[[Accesses, ReuseRuns, int], PolicyRun]


def _by_depth(depths: Int32Array) -> PolicyRun:
    return PolicyRun(lambda capacity: (depths > 0) & (depths <= capacity), depths)


def _lru(accesses: Accesses, runs: ReuseRuns, seed: int) -> PolicyRun:
    return _by_depth(lru_depths(accesses, runs))


def _tail_first(accesses: Accesses, runs: ReuseRuns, seed: int) -> PolicyRun:
    return _by_depth(lru_tail_first_depths(accesses, runs))


def _fifo(accesses: Accesses, runs: ReuseRuns, seed: int) -> PolicyRun:
    fifo = Fifo(accesses, runs)
    return PolicyRun(lambda capacity: fifo.hits_many([capacity])[0], hits_many=fifo.hits_many)


def _lfu(accesses: Accesses, runs: ReuseRuns, seed: int) -> PolicyRun:
    return PolicyRun(lambda capacity: lfu_hits(accesses, capacity))


def _belady(accesses: Accesses, runs: ReuseRuns, seed: int) -> PolicyRun:
    optimum = Optimum(accesses, runs)
    return PolicyRun(optimum.hits)


def _optimum(accesses: Accesses, runs: ReuseRuns, seed: int) -> PolicyRun:
    optimum = Optimum(accesses, runs, may_bypass=True)
    return PolicyRun(optimum.hits, saturated_at=max(optimum.peak, 1))


TEXTBOOK: dict[str, CurvePolicy] = {
    policy.name: policy
    for policy in (
        CurvePolicy("lru", "least recently used, blocks of a request touched front to back", _lru),
        CurvePolicy("lru_tail_first", "the reference's order: a chain's tail goes before its head", _tail_first),
        CurvePolicy(
            "leaf_lru", "least recently used without cached children; here the same as lru_tail_first", _tail_first
        ),
        CurvePolicy("fifo", "first in, first out, block by block", _fifo),
        CurvePolicy("lfu", "fewest uses since it came in, then least recently used", _lfu),
        CurvePolicy("belady", "MIN: wanted again last; every accessed block enters the cache", _belady),
        CurvePolicy("optimum", "the most that any cache can hit: MIN that may leave a block out", _optimum),
    )
}


def find_policy(name: str) -> CurvePolicy:
    """The policy of this name.

    Raises:
        KvsimError: there is none (the message has the nearest names), or it cannot run without a clock.
    """
    if name in TEXTBOOK:
        return TEXTBOOK[name]
    from sim.analysis.curves_pool import queue_policy

    return queue_policy(name)


def list_policies() -> list[tuple[str, str]]:
    """Every name with one line, the textbook policies first."""
    from sim.eviction.registry import POLICIES

    queues = [(name if name not in TEXTBOOK else f"queue:{name}", entry.summary) for name, entry in POLICIES.items()]
    return [(policy.name, policy.summary) for policy in TEXTBOOK.values()] + queues
