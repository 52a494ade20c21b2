"""The window of the hit-rate statistics."""

from __future__ import annotations

import pytest

from sim.core.statistics import PrefixCacheStats, PrefixCachingMetrics


def observed(interval, *rows):
    """Hit rate after each row of (requests, queries, hits) or (reset, requests, queries, hits)."""
    metrics = PrefixCachingMetrics(interval)
    rates = []
    for row in rows:
        metrics.observe(PrefixCacheStats(*row) if len(row) == 4 else PrefixCacheStats(False, *row))
        rates.append(metrics.hit_rate)
    return rates


def test_nothing_queried_is_zero():
    assert PrefixCachingMetrics().hit_rate == 0.0
    assert PrefixCachingMetrics().interval == 1000


def test_the_window_holds_the_most_recent_requests():
    rows = [
        (4, 40, 0),
        (0, 0, 0),  # an empty observation changes nothing
        (1, 10, 10),  # exactly the interval: all stay
        (3, 30, 30),  # eight requests: the four of the first go
        (9, 90, 9),  # above the interval alone: the newest stays, several old ones go at once
        (True, 0, 0, 0),  # reset with nothing
        (2, 20, 5),
        (True, 1, 10, 10),  # reset comes before adding
    ]
    assert observed(5, *rows) == [0.0, 0.0, 0.2, 1.0, 0.1, 0.0, 0.25, 1.0]


def test_several_old_entries_go_at_once():
    assert observed(5, *[(1, 10, 0)] * 5, (5, 50, 50)) == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_the_newest_is_never_dropped(interval):
    assert observed(interval, (7, 70, 7), (9, 90, 45)) == [0.1, 0.5]


def test_a_hit_rate_is_by_tokens_not_by_requests():
    assert observed(10, (1, 90, 0), (1, 10, 10)) == [0.0, 0.1]


def test_preempted_requests_are_kept_apart():
    stats = PrefixCacheStats()
    stats.record(10, 4, preempted=False)
    stats.record(20, 16, preempted=True)
    assert (stats.requests, stats.queries, stats.hits) == (1, 10, 4)
    assert (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (1, 20, 16)
    metrics = PrefixCachingMetrics()
    metrics.observe(stats)
    assert metrics.hit_rate == 0.4


def test_a_step_of_preempted_requests_only_changes_nothing():
    stats = PrefixCacheStats()
    stats.record(20, 16, preempted=True)
    metrics = PrefixCachingMetrics(1)
    metrics.observe(PrefixCacheStats(False, 1, 10, 10))
    metrics.observe(stats)
    assert metrics.hit_rate == 1.0
