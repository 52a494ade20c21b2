"""Misses that only the readable path meets: other policies, sliding windows, several groups; blocks of 2 tokens."""

from miss_worlds import Played, World, config, spec

from sim.core.cache_groups import KVCacheGroup


def test_what_lies_behind_an_evicted_head_is_out_of_reach_and_charged_to_the_head():
    # x takes the three empty blocks and one of a's: fifo gives the first one, and the other two are of no use to c
    specs = [spec("a", 0, 1, 7), spec("x", 5, 2, 7), spec("c", 20, 1, 7)]
    run = Played(World(config(blocks=7), specs, []), policy="fifo")
    evicted, behind = (miss for miss in run.misses if miss["request_index"] == 2)
    assert (evicted["first_block"], evicted["blocks"], evicted["cause"]) == (0, 1, "evicted")
    assert (behind["first_block"], behind["blocks"], behind["cause"]) == (1, 2, "unreachable")
    assert behind["evicted_row"] == evicted["evicted_row"]
    assert run.costs[evicted["evicted_row"]]["recomputed_tokens"] == 6
    assert sum(cost["recomputed_tokens"] for cost in run.costs) == 6


def test_a_sliding_window_keeps_only_what_it_needs():
    groups = (KVCacheGroup("sliding_window", 2, window=4),)
    specs = [spec("a", 0, 1, 13), spec("b", 30, 1, 7)]
    run = Played(World(config(groups=groups, blocks=20), specs, []))
    assert [cause for *_, cause in run.causes(1)] == ["not_kept"]


def test_cached_out_of_reach_of_another_group():
    groups = (KVCacheGroup("full", 2), KVCacheGroup("sliding_window", 2, window=4))
    specs = [spec("a", 0, 1, 13), spec("b", 30, 1, 9)]
    run = Played(World(config(groups=groups, blocks=40), specs, []))
    assert run.tracker.hit_blocks == 0
    assert run.causes(1) == [(0, 4, "unreachable")]


def test_groups_of_unequal_blocks_count_in_blocks_of_the_first_full_one():
    groups = (KVCacheGroup("sliding_window", 2, window=5), KVCacheGroup("full", 4))
    specs = [spec("a", 0, 1, 13), spec("b", 30, 1, 12), spec("c", 60, 2, 39), spec("d", 90, 1, 13)]
    run = Played(World(config(groups=groups, blocks=34), specs, []))
    tracker = run.tracker
    assert tracker.block_size == 4
    assert tracker.asked_blocks == 3 + 3 + 9 + 3 == tracker.hit_blocks + tracker.missed_blocks.sum()
    assert run.causes(0) == [(0, 3, "never_seen")]
    assert run.causes(1)[-1][2] == "cap"
    assert len(run.costs) == len(run.evictions)
    assert all(
        cost["recomputed_tokens"] == 0 for cost, e in zip(run.costs, run.evictions, strict=True) if e["group"] == 0
    )
    charged = sum(miss["tokens"] for miss in run.misses if miss["evicted_row"] is not None)
    assert sum(cost["recomputed_tokens"] for cost in run.costs) == charged
