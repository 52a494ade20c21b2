"""The free queue: every rule, on a handful of blocks."""

from __future__ import annotations

import pytest

from sim.core.block import BlockKey, KVCacheBlock
from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.errors import InvariantError


@pytest.fixture
def blocks():
    return [KVCacheBlock(i) for i in range(6)]


@pytest.fixture
def queue(blocks):
    return FreeKVCacheBlockQueue(blocks)


def ids(found):
    return [block.block_id for block in found]


def order(queue):
    queue.check()
    assert queue.num_free_blocks == len(queue.get_all_free_blocks())
    return ids(queue.get_all_free_blocks())


def unlinked(block):
    return block.prev_free_block is None and block.next_free_block is None


def test_blocks_begin_in_order_of_their_ids(queue):
    assert order(queue) == [0, 1, 2, 3, 4, 5]


def test_popleft_takes_the_front_and_cuts_its_links(queue, blocks):
    assert queue.popleft() is blocks[0]
    assert unlinked(blocks[0])
    assert order(queue) == [1, 2, 3, 4, 5]


def test_popleft_on_an_empty_queue_says_so(queue):
    queue.popleft_n(6)
    with pytest.raises(ValueError, match="No free blocks available"):
        queue.popleft()
    assert order(queue) == []


@pytest.mark.parametrize("n", [0, 1, 3, 6])
def test_popleft_n_takes_the_first_n_in_order(queue, n):
    taken = queue.popleft_n(n)
    assert ids(taken) == list(range(n))
    assert all(unlinked(block) for block in taken)
    assert order(queue) == list(range(n, 6))


def test_popleft_n_of_more_than_there_are_changes_nothing(queue):
    with pytest.raises(ValueError, match="cannot take 7 blocks: 6 are free"):
        queue.popleft_n(7)
    assert order(queue) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("n", [1, 7])
def test_a_count_that_disagrees_with_the_links_is_told(queue, n):
    queue.popleft_n(6)
    queue.num_free_blocks = n
    with pytest.raises(InvariantError, match=f"num_free_blocks says {n}, the links end after 0"):
        queue.popleft_n(n) if n > 1 else queue.popleft()
    with pytest.raises(InvariantError, match=f"0 blocks are linked, num_free_blocks is {n}"):
        queue.check()


@pytest.mark.parametrize("position", range(6))
def test_remove_from_anywhere(queue, blocks, position):
    queue.remove(blocks[position])
    assert unlinked(blocks[position])
    assert order(queue) == [i for i in range(6) if i != position]


def test_remove_names_a_block_that_is_not_linked(queue, blocks):
    queue.remove(blocks[3])
    with pytest.raises(RuntimeError, match="block_id=3"):
        queue.remove(blocks[3])
    assert order(queue) == [0, 1, 2, 4, 5]


def test_append_and_append_n_go_to_the_back_in_order(queue):
    a, b, c = queue.popleft_n(3)
    queue.append(c)
    queue.append_n([b, a])
    queue.append_n([])
    assert order(queue) == [3, 4, 5, 2, 1, 0]


def test_prepend_n_puts_the_first_given_first(queue):
    a, b, c = queue.popleft_n(3)
    queue.prepend_n([b, c])
    queue.prepend_n([])
    queue.prepend_n([a])
    assert order(queue) == [0, 1, 2, 3, 4, 5]


def test_an_empty_queue_fills_from_either_end(queue):
    taken = queue.popleft_n(6)
    queue.prepend_n(taken[:2])
    queue.append_n(taken[2:])
    assert order(queue) == [0, 1, 2, 3, 4, 5]


def test_iteration_goes_on_after_a_cursor(queue, blocks):
    assert ids(queue.iter_blocks_after(None)) == [0, 1, 2, 3, 4, 5]
    assert ids(queue.iter_blocks_after(blocks[3])) == [4, 5]
    assert ids(queue.iter_blocks_after(blocks[5])) == []


def test_a_queue_of_nothing(queue):
    assert order(FreeKVCacheBlockQueue([])) == []


def test_check_finds_a_link_that_leads_back_wrongly(queue, blocks):
    blocks[3].prev_free_block = blocks[0]
    with pytest.raises(InvariantError, match="does not point back to block 2"):
        queue.check()


def test_check_finds_a_block_in_use(queue, blocks):
    blocks[2].ref_cnt = 1
    with pytest.raises(InvariantError, match="law 4"):
        queue.check()


def test_check_ends_on_a_circle(queue, blocks):
    blocks[5].next_free_block = blocks[0]
    with pytest.raises(InvariantError):
        queue.check()


class TestBlock:
    def test_a_second_hash_is_an_error(self):
        block = KVCacheBlock(3)
        block.set_hash(BlockKey(b"abc"), 4)
        with pytest.raises(ValueError, match="block 3 already has a hash"):
            block.set_hash(BlockKey(b"abd"), 4)
        assert (block.block_hash, block.num_hashed_tokens) == (b"abc", 4)

    def test_reset_clears_everything_that_the_hash_brought(self):
        block = KVCacheBlock(3)
        block.set_hash(BlockKey(b"abc"), 4)
        block.partial_key, block.is_phantom = BlockKey(b"x"), True
        block.reset_hash()
        assert (block.block_hash, block.num_hashed_tokens, block.partial_key, block.is_phantom) == (
            None,
            0,
            None,
            False,
        )
        block.set_hash(BlockKey(b"abd"), 2)

    def test_repr_shows_neighbours_by_id_only(self):
        blocks = [KVCacheBlock(i) for i in range(1000)]
        FreeKVCacheBlockQueue(blocks)
        assert "prev_free_block=499, next_free_block=501" in repr(blocks[500])
        assert len(repr(blocks[500])) < 200
        assert "prev_free_block=None" in repr(KVCacheBlock(0))
