"""On random tiny worlds the tracker explains each block as a naive model does, on both paths alike."""

import pytest
from hypothesis import HealthCheck, given, settings
from miss_worlds import Naive, Played, worlds

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
