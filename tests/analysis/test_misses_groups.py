"""Misses of models with sliding windows or several KV cache groups, on the readable path; blocks of 2 tokens."""

from miss_worlds import Played, World, config, spec

from sim.core.cache_groups import KVCacheGroup


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
