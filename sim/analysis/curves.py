"""Hit rate over cache capacity: cache only, requests one after another, no clock.

`capacity_curves` is the one call.  Every set of curves has the `optimum`, which bounds all others at
each capacity, and the infinite cache, which bounds the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray, IntArray
from sim.analysis.curves_policies import CurvePolicy, PolicyRun, find_policy
from sim.analysis.stack_distance import ReuseRuns, reuse_runs
from sim.errors import KvsimError

TARGETS = (0.5, 0.9, 0.95)
OPTIMUM = "optimum"
DEFINITIONS = {
    "hit_rate": "blocks found in the cache / all blocks, a prompt's partial last block included",
    "prefix_hit_rate": "blocks before a request's first miss / all blocks: what an engine can use",
    "token_hit_rate": "tokens in blocks found / all prompt tokens",
    "prefix_token_hit_rate": "tokens in blocks before a request's first miss / all prompt tokens",
    "full_block_hit_rate": "full blocks found / all full blocks",
    "hit_blocks": "the count behind hit_rate",
    "knee_blocks": "capacity farthest above the straight line from nothing to the curve's end, axes linear",
    "needs": "smallest capacity at which hit_rate reaches a share of the infinite cache's",
}


class Rates(NamedTuple):
    """Hit rates over the measured requests, each between 0 and 1.

    `hit_rate` is blocks found in the cache over all blocks.  The `prefix` forms count only the blocks before a
    request's first miss, those that an engine can use; `token` forms weigh blocks by their tokens;
    `full_block_hit_rate` leaves partial last blocks out, above and below.  `hit_blocks` is the count behind
    `hit_rate`.
    """

    hit_blocks: int
    hit_rate: float
    prefix_hit_rate: float
    token_hit_rate: float
    prefix_token_hit_rate: float
    full_block_hit_rate: float


class Point(NamedTuple):
    """What one policy reaches with `capacity_blocks` blocks."""

    capacity_blocks: int
    rates: Rates


class Need(NamedTuple):
    """The capacity at which a policy reaches `share` of what the infinite cache hits.

    `capacity_blocks` is None if it does not get there within the capacities tried.  `precision` says what the
    number is: ``exact``, ``within 1 %`` above the smallest, or the first ``of those tried``.
    """

    share: float
    capacity_blocks: int | None
    precision: str


@dataclass(frozen=True)
class Curve:
    """One policy over the capacities asked for, smallest first."""

    policy: str
    summary: str
    points: tuple[Point, ...]
    needs: tuple[Need, ...]
    knee_blocks: int | None
    dense: tuple[tuple[int, float], ...] = field(default=(), repr=False)
    """(capacity, hit rate) of the whole curve, thinned for drawing, where it is known everywhere; else empty."""


@dataclass(frozen=True)
class CurveSet:
    """The curves of one workload, the optimum among them, and what an infinite cache hits."""

    requests: int
    warmup_requests: int
    accesses: int
    unique_blocks: int
    prompt_tokens: int
    block_size: int
    largest_request_blocks: int
    infinite: Rates
    curves: tuple[Curve, ...]

    def curve(self, policy: str) -> Curve:
        """The curve of a policy by name.  Raises `KeyError`."""
        return next((curve for curve in self.curves if curve.policy == policy), None) or _missing(policy)


def _missing(policy: str) -> Curve:
    raise KeyError(policy)


def capacity_curves(
    accesses: Accesses,
    policies: Sequence[str],
    capacities_blocks: Sequence[int],
    *,
    warmup_requests: int = 0,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> CurveSet:
    """The curves of `policies`, and of the optimum, at these capacities.

    Args:
        accesses: the workload.
        policies: names that `find_policy` knows; each is computed once however often it is named.
        capacities_blocks: sizes of the cache in blocks, ≥ 1, in any order.
        warmup_requests: the first so many requests fill the cache and are not counted.
        seed: for policies that draw at random.
        progress: called with a policy's name and capacity before each pass.

    Raises:
        KvsimError: no capacity or one below 1, an unknown policy, no block to look up.
    """
    capacities = sorted(set(capacities_blocks))
    if not capacities:
        raise KvsimError("no capacity was given; name at least one, in blocks")
    if capacities[0] < 1:
        raise KvsimError(f"capacity {capacities[0]}: a cache holds at least 1 block")
    names = list(dict.fromkeys([*policies, OPTIMUM]))
    found = [find_policy(name) for name in names]
    meter = _Meter(accesses, warmup_requests)
    runs = reuse_runs(accesses)
    curves = tuple(_curve(policy, accesses, runs, meter, capacities, seed, progress) for policy in found)
    return CurveSet(
        requests=accesses.num_requests,
        warmup_requests=warmup_requests,
        accesses=len(accesses),
        unique_blocks=accesses.num_keys,
        prompt_tokens=accesses.prompt_tokens,
        block_size=accesses.block_size,
        largest_request_blocks=int(np.diff(accesses.starts).max()),
        infinite=meter.infinite,
        curves=curves,
    )


class _Meter:
    """Turns a mask of hits into rates over the measured requests."""

    def __init__(self, accesses: Accesses, warmup_requests: int) -> None:
        if not len(accesses):
            raise KvsimError("the workload has no block to look up: its prompts are empty or shorter than a block")
        if not 0 <= warmup_requests < accesses.num_requests:
            raise KvsimError(
                f"warm-up of {warmup_requests} requests: the workload has {accesses.num_requests}, and at least one "
                "must be left to count"
            )
        self.accesses = accesses
        self.first = int(accesses.starts[warmup_requests])
        if self.first == len(accesses):
            raise KvsimError(f"after a warm-up of {warmup_requests} requests no block is left to count")
        self._starts = accesses.starts[warmup_requests:] - self.first
        partial = accesses.partial[accesses.partial >= self.first]
        self._partial = partial - self.first
        self._short = accesses.block_size - accesses.last_tokens[accesses.request[partial]]
        self._request_of_partial = np.searchsorted(self._starts[1:], self._partial, side="right")
        self._blocks = len(accesses) - self.first
        self._tokens = self._blocks * accesses.block_size - int(self._short.sum())

    @cached_property
    def infinite(self) -> Rates:
        """What a cache hits that never evicts."""
        return self.rates(self.accesses.previous >= 0)

    def rates(self, hit: BoolArray) -> Rates:
        """Rates of a mask over all accesses."""
        counted = hit[self.first :]
        blocks = int(np.count_nonzero(counted))
        partial = counted[self._partial]
        tokens = blocks * self.accesses.block_size - int(self._short[partial].sum())
        full = self._blocks - len(self._partial)
        begins, ends = self._starts[:-1], self._starts[1:]
        ends_of_hits = np.flatnonzero(counted[:-1] & ~counted[1:]) + 1
        edges = np.append(ends_of_hits, [self._blocks, self._blocks + 1])
        first = np.append(counted, False)[begins]
        reach = np.where(first, np.minimum(edges[np.searchsorted(edges, begins, side="right")], ends), begins)
        prefix = int((reach - begins).sum())
        whole = partial & (reach[self._request_of_partial] > self._partial)
        prefix_tokens = prefix * self.accesses.block_size - int(self._short[whole].sum())
        return Rates(
            hit_blocks=blocks,
            hit_rate=blocks / self._blocks,
            prefix_hit_rate=prefix / self._blocks,
            token_hit_rate=tokens / self._tokens,
            prefix_token_hit_rate=prefix_tokens / self._tokens,
            full_block_hit_rate=(blocks - int(np.count_nonzero(partial))) / full if full else 0.0,
        )


def _curve(
    policy: CurvePolicy,
    accesses: Accesses,
    runs: ReuseRuns,
    meter: _Meter,
    capacities: list[int],
    seed: int,
    progress: Callable[[str], None],
) -> Curve:
    run = policy.prepare(accesses, runs, seed)
    points = []
    together = run.hits_many(capacities) if run.hits_many is not None else None
    for index, capacity in enumerate(capacities):
        progress(f"{policy.name} {capacity:,}")
        hit = run.hits(capacity) if together is None else together[index]
        points.append(Point(capacity, meter.rates(hit)))
    if run.depths is not None:
        counted = run.depths[meter.first :]
        reached_by = np.cumsum(np.bincount(counted)[1:])  # hits at capacity 1, 2, …
        needs = tuple(_exact_need(share, reached_by, meter.infinite.hit_blocks) for share in TARGETS)
        knee = _knee(np.arange(1, len(reached_by) + 1), reached_by)
        dense = _thin(reached_by, len(counted))
    else:
        needs = _needs(run, points, meter)
        reached = [(point.capacity_blocks, point.rates.hit_blocks) for point in points]
        knee = _knee(np.array([c for c, _ in reached]), np.array([h for _, h in reached])) if len(reached) > 2 else None
        dense = ()
    return Curve(policy.name, policy.summary, tuple(points), needs, knee, dense)


def _exact_need(share: float, reached_by: IntArray, possible: int) -> Need:
    wanted = -int(-share * possible // 1)
    if not possible or wanted > reached_by[-1]:
        return Need(share, None, "exact")
    return Need(share, int(np.searchsorted(reached_by, wanted)) + 1, "exact")


def _needs(run: PolicyRun, points: list[Point], meter: _Meter) -> tuple[Need, ...]:
    """From the points; where more room never hits less, closed in on between them."""
    known = {0: 0} | {point.capacity_blocks: point.rates.hit_blocks for point in points}
    if run.saturated_at is not None:
        known[run.saturated_at] = meter.infinite.hit_blocks
    needs = []
    for share in TARGETS:
        wanted = -int(-share * meter.infinite.hit_blocks // 1)
        enough = [capacity for capacity, hits in known.items() if hits >= wanted and capacity]
        if not enough or not meter.infinite.hit_blocks:
            needs.append(Need(share, None, "of those tried"))
            continue
        high = min(enough)
        if run.saturated_at is None:
            needs.append(Need(share, high, "of those tried"))
            continue
        low = max(capacity for capacity in known if capacity < high)
        while high - low > max(1, high // 100):
            # the curve bends down, so the straight line between two points lies below it: its crossing suffices
            line = low + (high - low) * (wanted - known[low]) / max(known[high] - known[low], 1)
            middle = min(max(int(line), low + 1), high - 1)
            known[middle] = int(np.count_nonzero(run.hits(middle)[meter.first :]))
            low, high = (low, middle) if known[middle] >= wanted else (middle, high)
            if low == middle or high - low <= max(1, high // 100):
                continue
            middle = (low + high) // 2
            known[middle] = int(np.count_nonzero(run.hits(middle)[meter.first :]))
            low, high = (low, middle) if known[middle] >= wanted else (middle, high)
        needs.append(Need(share, high, "exact" if high - low == 1 else "within 1 %"))
    return tuple(needs)


def _knee(capacities: IntArray, hits: IntArray) -> int | None:
    """The capacity whose hits lie farthest above the straight line from nothing to the last point.

    Kneedle's definition (Satopää, Albrecht, Irwin, Raghavan, "Finding a 'kneedle' in a haystack", ICDCSW 2011),
    both axes linear and scaled to 1.
    """
    if not len(hits) or hits[-1] == 0:
        return None
    above = hits / hits[-1] - capacities / capacities[-1]
    best = int(np.argmax(above))
    return int(capacities[best]) if above[best] > 0 else None


def _thin(reached_by: IntArray, accesses: int, count: int = 400) -> tuple[tuple[int, float], ...]:
    """At most `count` points of the curve, evenly spaced on a logarithmic axis."""
    if not len(reached_by):
        return ()
    capacities = sorted(set(np.geomspace(1, len(reached_by), count).astype(np.int64).tolist()))
    return tuple((c, int(reached_by[c - 1]) / accesses) for c in capacities)
