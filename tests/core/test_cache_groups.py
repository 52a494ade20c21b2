"""Lookup and tables of one group and of several: full attention, sliding windows, retention."""

from __future__ import annotations

import pytest
from tiny_worlds import Engine, config, full, make_request, serve, sliding

from sim.core.cache_groups import KVCacheGroup, hash_block_size, scheduler_block_size
from sim.core.kv_cache_manager import KVCacheManager
from sim.errors import InvariantError


def hits(engine, prompt, name="probe", **more):
    """Hit length of a prompt, and the table ids of each group, without taking anything."""
    request = make_request(
        name, prompt, block_size=engine.scheduler.kv_cache_manager.coordinator.hash_block_size, **more
    )
    blocks, length = engine.scheduler.kv_cache_manager.get_computed_blocks(request)
    return length, [[block.block_id for block in group] for group in blocks]


def served(groups, prompt, num_blocks=40, size=2, answer=1, **settings):
    """An engine that has served one prompt."""
    engine = Engine(config(num_blocks, groups, **settings))
    serve(engine, make_request("first", prompt, answer, block_size=size))
    return engine


class TestGroupDescriptions:
    @pytest.mark.parametrize(
        "wrong",
        [("mamba", 2, None), ("full", 0, None), ("full", 2, 4), ("sliding_window", 2, None), ("sliding_window", 2, 0)],
    )
    def test_contradictions_are_refused(self, wrong):
        with pytest.raises(ValueError, match=r"group|block_size|window"):
            KVCacheGroup(*wrong)

    def test_sizes(self):
        groups = [full(4), sliding(8, 6)]
        assert (scheduler_block_size(groups), hash_block_size(groups)) == (12, 2)


class TestFullAttention:
    def test_the_longest_run_from_the_start(self):
        engine = served(None, 10)
        assert hits(engine, 12)[0] == 10
        assert hits(engine, [0, 1, 2, 3, 9, 9, 6, 7])[0] == 4
        assert hits(engine, [9, 1, 2, 3])[0] == 0

    @pytest.mark.parametrize(("length", "hit"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (8, 6), (9, 8)])
    def test_at_least_one_token_is_computed(self, length, hit):
        assert hits(served(None, 10), length)[0] == hit

    def test_lookup_changes_nothing(self):
        engine = served(None, 10)
        before = engine.free()
        hits(engine, 12)
        assert engine.free() == before
        assert all(block.ref_cnt == 0 for block in engine.pool.blocks)

    def test_a_hole_ends_the_run(self):
        engine = served(None, 10)
        _, (blocks,) = hits(engine, 12)
        engine.pool.evict_blocks([blocks[2]])
        assert hits(engine, 12)[0] == 4

    def test_no_lookup_with_caching_off(self):
        assert hits(served(None, 10, enable_prefix_caching=False), 12) == (0, [[]])

    @pytest.mark.parametrize("other", [{"salt": "s"}, {"lora": "l"}, {"items": [("i", 0, 1)]}])
    def test_another_tenant_hits_nothing(self, other):
        assert hits(served(None, 10), 12, **other)[0] == 0

    def test_an_image_further_on_leaves_the_blocks_before_it(self):
        assert hits(served(None, 10), 12, items=[("i", 5, 2)])[0] == 4


class TestSlidingWindow:
    """Window 5, blocks of 2: two contiguous blocks serve a hit."""

    GROUPS = (sliding(5),)

    def test_the_right_most_run_counts_and_null_blocks_stand_before_it(self):
        engine = served(self.GROUPS, 12, retention_interval=None)
        length, (blocks,) = hits(engine, 14)
        assert length == 12
        assert blocks[:4] == [0, 0, 0, 0]
        assert all(blocks[4:])

    def test_a_run_that_is_too_short_is_passed_over(self):
        engine = served(self.GROUPS, 12, retention_interval=None)
        _, (blocks,) = hits(engine, 14)
        engine.pool.evict_blocks([blocks[5]])
        length, (found,) = hits(engine, 14)
        assert length == 10
        assert found[:3] == [0, 0, 0]
        assert len(found) == 5

    def test_else_the_run_at_the_very_start_even_if_shorter(self):
        engine = served(self.GROUPS, 12, retention_interval=None)
        table = {block.num_hashed_tokens: block.block_id for block in engine.pool.blocks if block.block_hash}
        engine.pool.evict_blocks([table[tokens] for tokens in (4, 8, 12)])
        assert hits(engine, 14) == (2, [[table[2]]])

    def test_no_run_at_all(self):
        engine = served(self.GROUPS, 12, retention_interval=None)
        table = {block.num_hashed_tokens: block.block_id for block in engine.pool.blocks if block.block_hash}
        engine.pool.evict_blocks([table[tokens] for tokens in (2, 6, 10)])
        assert hits(engine, 14)[0] == 0

    @pytest.mark.parametrize(("window", "needs"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
    def test_a_run_is_as_long_as_the_window_needs(self, window, needs):
        engine = served((sliding(window),), 12, retention_interval=None)
        length, (blocks,) = hits(engine, 14)
        assert length == 12
        assert sum(1 for block in blocks if block) == needs

    @pytest.mark.parametrize("retention", [None, 0, 4])
    def test_a_window_of_one_token_keeps_no_key(self, retention):
        engine = served((sliding(1),), 12, retention_interval=retention)
        assert hits(engine, 14)[0] == 0
        assert not any(block.block_hash for block in engine.pool.blocks)

    def test_what_left_the_window_is_freed_before_each_allocation(self):
        engine = Engine(config(20, self.GROUPS, max_num_batched_tokens=4, retention_interval=None))
        engine.add(make_request("a", 16))
        engine.step()
        assert engine.table("a") == [1, 2]
        engine.step()  # 4 computed: no token is outside the window of the next
        assert engine.table("a") == [1, 2, 3, 4]
        engine.step()  # 8 computed: tokens 0 to 3 are
        assert engine.table("a") == [0, 0, 3, 4, 5, 6]
        assert {1, 2} <= set(engine.free())
        engine.run()
        assert sorted(engine.free()) == list(range(1, 21))

    def test_a_prompt_far_longer_than_the_pool_passes_through_a_window(self):
        engine = Engine(config(5, self.GROUPS, max_num_batched_tokens=4, scheduler_reserve_full_isl=True))
        serve(engine, make_request("a", 40, 3))
        assert engine.ended == ["a"]


class TestRetention:
    """Which blocks keep a key: window 5, blocks of 2, a prompt of 20 tokens and 8 answers."""

    @staticmethod
    def kept(retention, prompt=20, answer=8, groups=None, size=2):
        engine = served(groups or [sliding(5)], prompt, retention_interval=retention, answer=answer, size=size)
        return sorted(block.num_hashed_tokens for block in engine.pool.blocks if block.block_hash)

    def test_none_keeps_all(self):
        assert self.kept(None) == list(range(2, 27, 2))

    def test_zero_keeps_the_run_where_a_resend_resumes(self):
        assert self.kept(0) == [16, 18]

    def test_n_keeps_the_tail_of_every_segment_too(self):
        assert self.kept(8) == [6, 8, 14, 16, 18, 22, 24]

    def test_none_with_coarser_alignment_keeps_runs_before_boundaries(self):
        kept = self.kept(None, groups=(full(8), sliding(5)), size=2, prompt=20, answer=8)
        assert kept == [6, 8, 8, 14, 16, 16, 22, 24, 24]

    def test_a_junction_found_at_lookup_is_kept(self):
        groups = (full(2), sliding(5))
        engine = Engine(config(60, groups, retention_interval=0))
        serve(engine, make_request("a", [*range(20)]))
        shared = [*range(12), *range(100, 120)]
        assert hits(engine, shared)[0] == 0  # full attention has 12 tokens, the window has none there
        serve(engine, make_request("b", shared))
        assert hits(engine, [*range(12), 777, 778, 779])[0] == 12


class TestSeveralGroups:
    def test_every_group_must_agree(self):
        engine = served((full(2), sliding(5)), 12, retention_interval=None)
        length, (wide, narrow) = hits(engine, 14)
        assert length == 12
        assert all(wide)
        assert narrow[:4] == [0, 0, 0, 0]
        engine.pool.evict_blocks([narrow[5]])
        length, (wide, narrow) = hits(engine, 14)
        assert (length, len(wide), len(narrow)) == (10, 5, 5)
        engine.pool.evict_blocks([wide[1]])
        assert hits(engine, 14)[0] == 2

    def test_groups_of_a_kind_are_looked_up_together(self):
        engine = served((full(2), full(2)), 12)
        length, (one, two) = hits(engine, 14)
        assert length == 12
        assert not set(one) & set(two)
        engine.pool.evict_blocks([two[3]])
        assert hits(engine, 14)[0] == 6

    def test_hits_land_on_multiples_of_all_sizes(self):
        engine = served((full(4), sliding(5, 6)), 26, size=2, retention_interval=None)
        length, (wide, narrow) = hits(engine, 30)
        assert (length, len(wide), len(narrow)) == (24, 6, 4)
        assert hits(engine, 23)[0] == 12

    def test_a_request_frees_group_by_group_last_block_first(self):
        engine = Engine(config(8, (full(2), full(2))))
        engine.add(make_request("a", 4, 9))
        engine.step()
        assert (engine.table("a", 0), engine.table("a", 1)) == ([1, 2], [3, 4])
        engine.abort("a")
        assert engine.free() == [5, 6, 7, 8, 2, 1, 4, 3]


class TestTables:
    def test_check_finds_a_table_without_reference(self):
        engine = Engine(config(8))
        engine.add(make_request("a", 4, 9))
        engine.step()
        engine.pool.blocks[1].ref_cnt = 2
        with pytest.raises(InvariantError, match=r"law 2: .* is in 1 tables"):
            engine.scheduler.check()

    def test_check_finds_blocks_of_somebody_gone(self):
        engine = Engine(config(8))
        engine.add(make_request("a", 4, 9))
        engine.step()
        del engine.scheduler.requests["a"]
        engine.scheduler.running.clear()
        with pytest.raises(InvariantError, match="law 2: request a has ended and holds blocks"):
            engine.scheduler.check()

    def test_hits_for_a_request_that_has_blocks_are_refused(self):
        manager = KVCacheManager(9, [full()], 64)
        one, two = make_request("a", 5), make_request("b", 5)
        manager.allocate_slots(one, 5)
        blocks, length = manager.get_computed_blocks(two)
        assert length == 4
        with pytest.raises(InvariantError, match="request a has blocks and was given hits"):
            manager.allocate_slots(one, 5, 4, blocks)
