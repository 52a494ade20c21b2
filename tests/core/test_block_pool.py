"""The pool: who is free, who is cached under which key, and what is told about it."""

from __future__ import annotations

import logging

import pytest
from tiny_worlds import SHA256, make_request

from sim.core.block import make_block_key
from sim.core.block_pool import BlockMap, BlockPool, PoolObserver
from sim.core.events import AllBlocksCleared, BlockRemoved, BlockStored
from sim.core.hashing import hash_request_tokens
from sim.errors import InvariantError


@pytest.fixture
def pool():
    return BlockPool(7, enable_kv_cache_events=True)


def free(pool):
    pool.check()
    return [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]


def cached(pool, request, blocks, known=0, full=None, group=0, mask=None):
    """Give `blocks` the keys of the request's blocks."""
    full = len(blocks) if full is None else full
    pool.cache_full_blocks(request, blocks, known, full, 2, group, request.block_hashes, mask)
    return blocks


def find(pool, request, index, groups=(0,)):
    found = pool.get_cached_block(request.block_hashes[index], groups)
    return None if found is None else [block.block_id for block in found]


class TestNullBlock:
    def test_it_is_block_0_and_never_handed_out(self, pool):
        assert pool.null_block is pool.blocks[0]
        assert pool.null_block.is_null
        assert free(pool) == [1, 2, 3, 4, 5, 6]

    def test_it_is_neither_touched_nor_freed_nor_cached(self, pool):
        request = make_request("a", 4)
        block = pool.get_new_blocks(1)[0]
        cached(pool, request, [pool.null_block, block])
        pool.touch([pool.null_block])
        pool.free_blocks([pool.null_block])
        assert pool.null_block.ref_cnt == 0
        assert find(pool, request, 0) is None
        assert find(pool, request, 1) == [1]
        assert free(pool) == [2, 3, 4, 5, 6]

    def test_a_pool_of_the_null_block_alone(self):
        pool = BlockPool(1)
        assert (free(pool), pool.get_usage()) == ([], 0.0)
        with pytest.raises(ValueError, match="0 are free"):
            pool.get_new_blocks(1)

    @pytest.mark.parametrize("n", [0, -1])
    def test_a_pool_of_nothing(self, n):
        with pytest.raises(ValueError, match="at least one block"):
            BlockPool(n)


class TestTaking:
    def test_from_the_front_with_one_reference_each(self, pool):
        blocks = pool.get_new_blocks(2)
        assert [(block.block_id, block.ref_cnt) for block in blocks] == [(1, 1), (2, 1)]
        assert free(pool) == [3, 4, 5, 6]

    def test_none(self, pool):
        assert pool.get_new_blocks(0) == []

    def test_more_than_there_are_changes_nothing(self, pool):
        with pytest.raises(ValueError, match="cannot get 7 blocks: 6 are free"):
            pool.get_new_blocks(7)
        assert free(pool) == [1, 2, 3, 4, 5, 6]

    def test_usage(self, pool):
        assert pool.get_usage() == 0.0
        pool.get_new_blocks(3)
        assert pool.get_usage() == 0.5
        pool.get_new_blocks(3)
        assert pool.get_usage() == 1.0


class TestFreeing:
    def test_without_keys_at_the_front_with_keys_at_the_back_each_in_order(self, pool):
        blocks = pool.get_new_blocks(4)
        cached(pool, make_request("a", 4), blocks[:2])
        pool.free_blocks([blocks[3], blocks[1], blocks[2], blocks[0]])
        assert free(pool) == [4, 3, 5, 6, 2, 1]

    def test_a_block_that_somebody_else_holds_stays(self, pool):
        block = cached(pool, make_request("a", 2), pool.get_new_blocks(1))[0]
        pool.touch([block])
        pool.free_blocks([block])
        assert block.ref_cnt == 1
        assert free(pool) == [2, 3, 4, 5, 6]

    def test_the_same_block_twice_in_one_call(self, pool):
        block = pool.get_new_blocks(1)[0]
        pool.touch([block])
        pool.free_blocks([block, block])
        assert free(pool) == [1, 2, 3, 4, 5, 6]

    def test_what_nobody_holds_cannot_be_freed(self, pool):
        with pytest.raises(InvariantError, match="law 2"):
            pool.free_blocks([pool.blocks[1]])

    def test_with_caching_off_all_go_to_the_front(self):
        pool = BlockPool(4, enable_caching=False)
        blocks = pool.get_new_blocks(2)
        pool.free_blocks(reversed(blocks))
        assert free(pool) == [2, 1, 3]


class TestTouching:
    def test_a_free_block_leaves_the_queue(self, pool):
        blocks = cached(pool, make_request("a", 4), pool.get_new_blocks(2))
        pool.free_blocks(reversed(blocks))
        pool.touch(blocks)
        assert [block.ref_cnt for block in blocks] == [1, 1]
        assert free(pool) == [3, 4, 5, 6]

    def test_a_held_block_gets_one_more_holder(self, pool):
        block = pool.get_new_blocks(1)[0]
        pool.touch([block])
        assert block.ref_cnt == 2


class TestKeys:
    def test_a_block_is_found_under_its_hash_and_group(self, pool):
        request = make_request("a", 4)
        cached(pool, request, pool.get_new_blocks(2), group=1)
        assert find(pool, request, 0, (1,)) == [1]
        assert find(pool, request, 1, (1,)) == [2]
        assert find(pool, request, 0, (0,)) is None

    def test_all_groups_must_have_it(self, pool):
        request = make_request("a", 2)
        cached(pool, request, pool.get_new_blocks(1), group=0)
        assert find(pool, request, 0, (0, 1)) is None
        cached(pool, request, pool.get_new_blocks(1), group=1)
        assert find(pool, request, 0, (0, 1)) == [1, 2]
        assert find(pool, request, 0, (1, 0)) == [2, 1]

    def test_only_blocks_that_are_newly_full(self, pool):
        request = make_request("a", 6)
        blocks = pool.get_new_blocks(3)
        cached(pool, request, blocks, 0, 1)
        cached(pool, request, blocks, 1, 2)
        assert [block.block_hash is not None for block in blocks] == [True, True, False]
        assert [block.num_hashed_tokens for block in blocks] == [2, 4, 0]

    def test_masked_blocks_get_none(self, pool):
        request = make_request("a", 6)
        cached(pool, request, pool.get_new_blocks(3), mask=[False, True, False])
        assert [find(pool, request, index) for index in range(3)] == [None, [2], None]

    def test_equal_content_stays_in_several_blocks_and_the_first_inserted_wins(self, pool):
        request = make_request("a", 2)
        blocks = pool.get_new_blocks(3)
        for block in (blocks[1], blocks[0], blocks[2]):
            cached(pool, request, [block])
        assert find(pool, request, 0) == [2]

    def test_evicting_one_duplicate_leaves_the_others(self, pool):
        request = make_request("a", 2)
        blocks = pool.get_new_blocks(6)
        for block in (blocks[1], blocks[0], blocks[2]):
            cached(pool, request, [block])
        pool.free_blocks([blocks[1]])
        assert pool.get_new_blocks(1) == [blocks[1]]
        assert blocks[1].block_hash is None
        assert find(pool, request, 0) == [1]
        pool.free_blocks([blocks[2]])
        pool.get_new_blocks(1)
        assert find(pool, request, 0) == [1]
        pool.free_blocks([blocks[0]])
        pool.get_new_blocks(1)
        assert find(pool, request, 0) is None
        assert len(pool.cached_block_hash_to_block) == 0

    def test_a_block_cached_anew_goes_behind_its_duplicates(self, pool):
        request = make_request("a", 2)
        blocks = pool.get_new_blocks(6)
        cached(pool, request, [blocks[0]])
        cached(pool, request, [blocks[1]])
        pool.free_blocks([blocks[0]])
        pool.get_new_blocks(1)
        cached(pool, request, [blocks[0]])
        assert find(pool, request, 0) == [2]

    def test_partial_key_is_a_second_key_and_leaves_with_the_first(self, pool):
        request = make_request("a", 4)
        fine = hash_request_tokens(SHA256, 1, request)
        block = cached(pool, request, pool.get_new_blocks(1))[0]
        pool.cache_partial_block(request, block, 0, 1, 0, fine[0], None)
        pool.check()
        assert pool.get_cached_block(fine[0], (0,)) == [block]
        pool.evict_blocks([block.block_id])
        pool.check()
        assert pool.get_cached_block(fine[0], (0,)) is None
        assert pool.num_evicted_keys == 2


class TestEviction:
    def test_reuse_takes_the_keys_away(self, pool):
        request = make_request("a", 12)
        pool.free_blocks(reversed(cached(pool, request, pool.get_new_blocks(6))))
        assert free(pool) == [6, 5, 4, 3, 2, 1]
        pool.get_new_blocks(2)
        assert [find(pool, request, index) for index in range(6)] == [[1], [2], [3], [4], None, None]
        assert pool.num_evicted_keys == 2

    def test_evict_blocks_drops_keys_wherever_the_block_is(self, pool):
        request = make_request("a", 4)
        held, freed = cached(pool, request, pool.get_new_blocks(2))
        pool.free_blocks([freed])
        pool.evict_blocks([held.block_id, freed.block_id, 5])
        assert (find(pool, request, 0), find(pool, request, 1)) == (None, None)
        assert (held.ref_cnt, freed.ref_cnt) == (1, 0)
        assert free(pool) == [3, 4, 5, 6, 2]

    @pytest.mark.parametrize("wrong", [-1, 7])
    def test_evict_blocks_names_an_id_that_is_not_there(self, pool, wrong):
        with pytest.raises(ValueError, match=f"block {wrong} is not among the pool's 7"):
            pool.evict_blocks([wrong])


class TestReset:
    def test_it_forgets_every_key_and_keeps_the_order(self, pool):
        request = make_request("a", 4)
        pool.free_blocks(reversed(cached(pool, request, pool.get_new_blocks(2))))
        pool.take_events()
        assert pool.reset_prefix_cache()
        assert find(pool, request, 0) is None
        assert free(pool) == [3, 4, 5, 6, 2, 1]
        assert pool.take_events() == [AllBlocksCleared()]

    def test_it_refuses_while_a_block_is_in_use(self, pool, caplog):
        request = make_request("a", 2)
        cached(pool, request, pool.get_new_blocks(1))
        pool.take_events()
        with caplog.at_level(logging.WARNING):
            assert not pool.reset_prefix_cache()
        assert "1 blocks are in use" in caplog.text
        assert find(pool, request, 0) == [1]
        assert pool.take_events() == []


class TestEvents:
    def test_stored_tells_everything_about_one_call(self, pool):
        request = make_request("a", 6, lora="fr", items=[("img", 3, 1)])
        cached(pool, request, pool.get_new_blocks(3), 0, 1)
        cached(pool, request, pool.blocks[1:4], 1, 3)
        first, second = pool.take_events()
        lora = ("lora", "fr", "/adapters/fr")
        assert first == BlockStored(
            (request.block_hashes[0],), None, (0, 1), 2, ord("f") + ord("r"), "fr", 0, ((lora,),)
        )
        assert second == BlockStored(
            tuple(request.block_hashes[1:]), request.block_hashes[0], (2, 3, 4, 5), 2, ord("f") + ord("r"), "fr", 0,
            ((lora, ("mm", "img", 1)), (lora,)),
        )  # fmt: skip
        assert pool.take_events() == []

    def test_removed_is_one_per_key(self, pool):
        request = make_request("a", 4)
        pool.free_blocks(cached(pool, request, pool.get_new_blocks(2), group=3))
        pool.take_events()
        pool.get_new_blocks(6)
        assert pool.take_events() == [BlockRemoved((value,), 3) for value in request.block_hashes]

    def test_none_unless_asked_for(self):
        pool = BlockPool(3)
        pool.free_blocks(cached(pool, make_request("a", 4), pool.get_new_blocks(2)))
        pool.get_new_blocks(2)
        assert pool.take_events() == []
        assert pool.num_evicted_keys == 2


class Told(PoolObserver):
    def __init__(self):
        self.calls = []

    def allocated(self, blocks):
        self.calls.append(("allocated", [block.block_id for block in blocks]))

    def evicted(self, block):
        self.calls.append(("evicted", block.block_id, block.block_hash is not None))

    def hit(self, blocks):
        self.calls.append(("hit", [block.block_id for block in blocks]))

    def releasing(self, blocks):
        self.calls.append(("releasing", [block.block_id for block in blocks]))

    def cleared(self):
        self.calls.append(("cleared",))


def test_an_observer_is_told_of_everything_in_order():
    told = Told()
    pool = BlockPool(3, observer=told)
    blocks = cached(pool, make_request("a", 2), pool.get_new_blocks(2), 0, 1)
    pool.touch(blocks[:1])
    pool.free_blocks(blocks)
    pool.free_blocks(blocks[:1])
    pool.get_new_blocks(2)
    assert told.calls == [
        ("allocated", [1, 2]),
        ("hit", [1]),
        ("releasing", [2]),
        ("releasing", [1]),
        ("evicted", 1, True),
        ("allocated", [2, 1]),
    ]


class TestCheck:
    def test_law_1_a_block_that_is_lost(self, pool):
        pool.free_block_queue.popleft()
        with pytest.raises(InvariantError, match="law 1: 5 free \\+ 0 used != 6 blocks"):
            pool.check()

    def test_law_3_a_key_that_the_map_has_lost(self, pool):
        request = make_request("a", 2)
        cached(pool, request, pool.get_new_blocks(1))
        pool.cached_block_hash_to_block.clear()
        with pytest.raises(InvariantError, match="law 3"):
            pool.check()

    def test_law_3_a_block_under_another_key(self, pool):
        request = make_request("a", 4)
        block = cached(pool, request, pool.get_new_blocks(1))[0]
        pool.cached_block_hash_to_block.insert(make_block_key(request.block_hashes[1], 0), block)
        with pytest.raises(InvariantError, match="law 3"):
            pool.check()

    def test_law_4_a_block_that_is_free_and_in_use(self, pool):
        pool.blocks[2].ref_cnt = 1
        with pytest.raises(InvariantError, match="law 4"):
            pool.check()

    def test_law_4_a_null_block_that_is_counted(self, pool):
        pool.null_block.ref_cnt = 1
        with pytest.raises(InvariantError, match="law 4: the null block"):
            pool.check()


class TestBlockMap:
    def test_it_keeps_order_of_insertion(self, pool):
        table = BlockMap()
        for index in (3, 1, 2):
            table.insert(b"k", pool.blocks[index])
        assert [[block.block_id for block in blocks] for _, blocks in table.items()] == [[3, 1, 2]]
        assert table.remove(b"k", 3)
        assert table.get(b"k") is pool.blocks[1]
        assert not table.remove(b"k", 3)
        assert not table.remove(b"other", 1)
        assert table.remove(b"k", 1)
        assert table.remove(b"k", 2)
        assert table.get(b"k") is None
        assert len(table) == 0

    def test_removing_another_block_than_the_only_one(self, pool):
        table = BlockMap()
        table.insert(b"k", pool.blocks[1])
        assert not table.remove(b"k", 2)
        assert table.get(b"k") is pool.blocks[1]
