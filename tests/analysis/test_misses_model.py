"""On random tiny worlds the tracker explains each block as a naive model does, on both paths alike."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from miss_worlds import Naive, Played, worlds

from sim.analysis import eviction_cost

QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def compare(world):
    naive = Naive(world)
    played = Played(world, naive=naive)
    fast = Played(world, "fast")
    assert played.blocks() == naive.missed
    told = [(row["recomputed_tokens"], row["next_request_index"], row["better_victim"]) for row in played.costs]
    assert told == naive.costs()
    for table in ("misses", "evictions", "eviction_costs"):
        assert fast.sink.rows[table] == played.sink.rows[table], table
    for tracker in (played.tracker, fast.tracker):
        assert tracker.asked_blocks == tracker.hit_blocks + int(tracker.missed_blocks.sum())
        assert tracker.asked_blocks == sum(asked for asked, _ in _asked(naive))
        assert not tracker._due.any()  # all has been computed, or will not be


def _asked(naive):
    return [(len(hashes), request) for _, request, hashes in naive.wants]


@settings(max_examples=100, **QUIET)
@given(worlds())
def test_random_worlds(world):
    compare(world)


@settings(max_examples=60, **QUIET)
@given(worlds(features=False))
def test_without_extra_keys(world):
    compare(world)


@pytest.mark.long
@settings(max_examples=5000, **QUIET)
@given(worlds())
def test_many_random_worlds(world):
    compare(world)


ranges = st.lists(st.tuples(st.integers(0, 29), st.integers(1, 30), st.integers(0, 9)), max_size=12)


@given(ranges)
def test_largest_of_ranges(found):
    found = [(start, min(start + length, 30), value) for start, length, value in found]
    columns = np.array(found, dtype=np.int32).reshape(-1, 3).T
    naive = [max((v for a, b, v in found if a <= point < b), default=-1) for point in range(30)]
    assert eviction_cost.max_of_ranges(30, *columns).tolist() == naive


@settings(max_examples=30, **QUIET)
@given(worlds())
def test_costs_do_not_depend_on_how_the_rows_are_cut(world):
    history = Played(world, "fast").tracker.history()
    whole = eviction_cost.eviction_costs(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eviction_cost, "CHUNK", 2)
        cut = eviction_cost.eviction_costs(history)
    assert all(np.array_equal(a, b) for a, b in zip(whole, cut, strict=True))
