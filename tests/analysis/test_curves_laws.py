"""Capacity curves against caches written the obvious way, and the laws between them, in tiny worlds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.analysis.accesses import Accesses, accesses_from_keys
from sim.analysis.curves import capacity_curves
from sim.analysis.curves_optimum import Optimum
from sim.analysis.curves_policies import TEXTBOOK, find_policy
from sim.analysis.stack_distance import reuse_runs
from sim.errors import KvsimError
from sim.eviction.registry import POLICIES

Requests = list[list[int]]


def chained(requests: Sequence[Sequence[int]]) -> Requests:
    """Ids that stand for whole prefixes."""
    ids: dict[tuple[int, ...], int] = {}
    return [[ids.setdefault(tuple(row[: end + 1]), len(ids)) for end in range(len(row))] for row in requests]


worlds = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=12).map(chained)


def lru(requests: Requests, capacity: int) -> list[bool]:
    cache: OrderedDict[int, None] = OrderedDict()
    hits = []
    for key in (key for row in requests for key in row):
        hits.append(key in cache)
        cache[key] = None
        cache.move_to_end(key)
        if len(cache) > capacity:
            cache.popitem(last=False)
    return hits


def fifo(requests: Requests, capacity: int) -> list[bool]:
    cache: OrderedDict[int, None] = OrderedDict()
    hits = []
    for key in (key for row in requests for key in row):
        hits.append(key in cache)
        cache.setdefault(key)
        if len(cache) > capacity:
            cache.popitem(last=False)
    return hits


def lfu(requests: Requests, capacity: int) -> list[bool]:
    uses: dict[int, tuple[int, int]] = {}
    hits = []
    for now, key in enumerate(key for row in requests for key in row):
        hits.append(key in uses)
        if key not in uses and len(uses) == capacity:
            del uses[min(uses, key=lambda k: uses[k])]
        uses[key] = (uses.get(key, (0, 0))[0] + 1, now)
    return hits


def tail_first(requests: Requests, capacity: int) -> list[bool]:
    recent: list[int] = []  # most recent first
    hits = []
    for row in requests:
        found = 0
        while found < len(row) and row[found] in recent:
            found += 1
        hits += [place < found for place in range(len(row))]
        recent = [*row, *(key for key in recent if key not in row)][:capacity]
    return hits


def minimum(requests: Requests, capacity: int, *, may_bypass: bool = False) -> list[bool]:
    flat = [key for row in requests for key in row]
    following = [flat[at + 1 :].index(key) + at + 1 if key in flat[at + 1 :] else 10**6 for at, key in enumerate(flat)]
    cache: dict[int, int] = {}
    hits = []
    for key, then in zip(flat, following, strict=True):
        hits.append(key in cache)
        if key not in cache and len(cache) == capacity and not may_bypass:
            del cache[max(cache, key=lambda k: cache[k])]
        cache[key] = then
        if len(cache) > capacity:
            del cache[max(cache, key=lambda k: cache[k])]
    return hits


OBVIOUS: dict[str, Callable[[Requests, int], list[bool]]] = {
    "lru": lru,
    "lru_tail_first": tail_first,
    "leaf_lru": tail_first,
    "fifo": fifo,
    "lfu": lfu,
    "belady": minimum,
    "optimum": lambda requests, capacity: minimum(requests, capacity, may_bypass=True),
}


@pytest.mark.parametrize("name", TEXTBOOK)
@settings(max_examples=150, deadline=None)
@given(requests=worlds)
def test_every_access_is_as_in_the_obvious_cache(name: str, requests: Requests) -> None:
    accesses = accesses_from_keys(requests)
    run = find_policy(name).prepare(accesses, reuse_runs(accesses), 0)
    capacities = [*range(1, accesses.num_keys + 2), 10**12]
    expected = [OBVIOUS[name](requests, capacity) for capacity in capacities]
    assert [run.hits(capacity).tolist() for capacity in capacities] == expected
    if run.hits_many is not None:
        assert [hits.tolist() for hits in run.hits_many(capacities)] == expected


@pytest.mark.parametrize("name", ["lru", "leaf_lru"])
@settings(max_examples=60, deadline=None)
@given(requests=worlds)
def test_the_free_queue_in_the_real_pool_is_the_one_pass_curve(name: str, requests: Requests) -> None:
    accesses = accesses_from_keys(requests)
    runs = reuse_runs(accesses)
    queue = find_policy(f"queue:{name}").prepare(accesses, runs, 0)
    stack = find_policy("lru_tail_first").prepare(accesses, runs, 0)
    for capacity in range(1, accesses.num_keys + 2):
        assert queue.hits(capacity).tolist() == stack.hits(capacity).tolist()


def hit_counts(requests: Requests, policies: Sequence[str]) -> dict[str, list[int]]:
    accesses = accesses_from_keys(requests)
    curves = capacity_curves(accesses, policies, range(1, accesses.num_keys + 2))
    return {curve.policy: [point.rates.hit_blocks for point in curve.points] for curve in curves.curves} | {
        "infinite": [curves.infinite.hit_blocks] * (accesses.num_keys + 1)
    }


@settings(max_examples=40, deadline=None)
@given(requests=worlds.filter(lambda rows: any(rows)))
def test_infinite_is_above_the_optimum_and_the_optimum_above_everything(requests: Requests) -> None:
    queues = [f"queue:{name}" for name in POLICIES]
    counts = hit_counts(requests, [*TEXTBOOK, *queues])
    for name, hits in counts.items():
        assert all(most >= hit for most, hit in zip(counts["infinite"], hits, strict=True)), name
        if name != "infinite":
            assert all(best >= hit for best, hit in zip(counts["optimum"], hits, strict=True)), name
    for name in ("lru", "fifo", "lfu"):
        assert all(best >= hit for best, hit in zip(counts["belady"], counts[name], strict=True)), name
    largest = max(len(row) for row in requests)
    for name in queues:  # MIN must take every block in; a pool need not take a request larger than itself
        assert all(b >= h for b, h in list(zip(counts["belady"], counts[name], strict=True))[largest - 1 :]), name


@settings(max_examples=60, deadline=None)
@given(requests=worlds.filter(lambda rows: any(rows)))
def test_more_room_never_hits_less_under_stack_policies(requests: Requests) -> None:
    counts = hit_counts(requests, ["lru", "lru_tail_first", "belady"])
    for name in ("lru", "lru_tail_first", "belady", "optimum"):
        assert counts[name] == sorted(counts[name]), name


def test_fifo_can_hit_less_with_more_room() -> None:
    """Belady's anomaly: FIFO is no stack policy."""
    requests = [[key] for key in (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)]
    assert hit_counts(requests, ["fifo"])["fifo"][2:4] == [3, 2]


@settings(max_examples=60, deadline=None)
@given(requests=worlds.filter(lambda rows: any(rows)), bypass=st.booleans())
def test_the_optimum_is_complete_exactly_from_its_peak_on(requests: Requests, bypass: bool) -> None:
    accesses = accesses_from_keys(requests)
    optimum = Optimum(accesses, may_bypass=bypass)
    possible = int((accesses.previous >= 0).sum())
    if optimum.peak > 1:
        assert minimum(requests, optimum.peak - 1, may_bypass=bypass).count(True) < possible
    if optimum.peak:
        assert minimum(requests, optimum.peak, may_bypass=bypass).count(True) == possible


@settings(max_examples=60, deadline=None)
@given(requests=worlds.filter(lambda rows: any(rows)))
def test_needs_are_the_smallest_capacities_that_suffice(requests: Requests) -> None:
    accesses = accesses_from_keys(requests)
    curves = capacity_curves(accesses, ["lru", "optimum"], [1, accesses.num_keys])
    possible = curves.infinite.hit_blocks
    for curve in curves.curves:
        counts = [0] + [OBVIOUS[curve.policy](requests, c).count(True) for c in range(1, accesses.num_keys + 1)]
        for need in curve.needs:
            enough = [capacity for capacity, hits in enumerate(counts) if hits >= need.share * possible and possible]
            assert need.capacity_blocks == (enough[0] if enough else None)


def test_keys_that_are_not_chained_are_refused() -> None:
    with pytest.raises(KvsimError, match="keys must be chained"):
        accesses_from_keys([[0, 1], [1, 0]])
    with pytest.raises(KvsimError, match="keys must be chained"):
        accesses_from_keys([[0, 1], [2, 1]])


def world() -> Accesses:
    return accesses_from_keys([[0, 1], [0, 1, 2], [0, 3]], block_size=4, last_tokens=[4, 1, 2])


def test_rates_count_what_they_say() -> None:
    curves = capacity_curves(world(), ["lru"], [10])
    rates = curves.curve("lru").points[0].rates
    assert rates == curves.infinite
    assert rates.hit_blocks == 3
    assert rates.hit_rate == pytest.approx(3 / 7)
    assert rates.full_block_hit_rate == pytest.approx(3 / 5)
    assert rates.token_hit_rate == pytest.approx(12 / 23)


def test_warm_up_fills_the_cache_and_is_not_counted() -> None:
    rates = capacity_curves(world(), [], [10], warmup_requests=1).infinite
    assert (rates.hit_blocks, rates.hit_rate) == (3, pytest.approx(3 / 5))


def test_a_hole_ends_the_prefix_but_is_counted_by_block() -> None:
    """FIFO evicts the head of a chain whose tail is still there."""
    accesses = accesses_from_keys([[0], [9], [0, 1], [8], [0, 1]])
    rates = capacity_curves(accesses, ["fifo"], [3]).curve("fifo").points[0].rates
    assert (rates.hit_rate, rates.prefix_hit_rate) == (2 / 7, 1 / 7)


@pytest.mark.parametrize(
    ("policies", "capacities", "message"),
    [
        (["lru"], [0], "capacity 0: a cache holds at least 1 block"),
        (["lru"], [5, -3], "capacity -3"),
        (["lru"], [], "no capacity was given"),
        (["lur"], [5], "unknown eviction policy 'lur'; did you mean lru"),
        (["queue:lur"], [5], "unknown eviction policy 'lur'"),
    ],
)
def test_bad_input_is_one_clear_line(policies: list[str], capacities: list[int], message: str) -> None:
    with pytest.raises(KvsimError, match=message) as caught:
        capacity_curves(world(), policies, capacities)
    assert "\n" not in str(caught.value)


def test_nothing_to_look_up_is_said() -> None:
    with pytest.raises(KvsimError, match="has no block to look up"):
        capacity_curves(accesses_from_keys([[], []]), ["lru"], [1])
    with pytest.raises(KvsimError, match="at least one must be left"):
        capacity_curves(world(), ["lru"], [1], warmup_requests=3)
