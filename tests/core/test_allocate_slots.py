"""Allocation: how many blocks, what a refusal leaves behind (nothing), and when blocks become visible."""

from __future__ import annotations

import pytest
from tiny_worlds import full, make_request, sliding

from sim.core.kv_cache_manager import KVCacheManager


def state(manager):
    """All that an allocation may change."""
    pool = manager.block_pool
    manager.check()
    return (
        [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        [(block.ref_cnt, block.block_hash, block.num_hashed_tokens) for block in pool.blocks],
        [
            ({name: list(table) for name, table in m.req_to_blocks.items() if table}, dict(m.num_cached_block))
            for m in manager.coordinator.managers
        ],
        pool.num_evicted_keys,
    )


def ids(blocks):
    return [[block.block_id for block in group] for group in blocks]


@pytest.fixture
def manager():
    """Six usable blocks of 2 tokens."""
    return KVCacheManager(7, [full()], 64)


def test_blocks_for_the_tokens_and_no_more(manager):
    request = make_request("a", 5, 9)
    assert ids(manager.allocate_slots(request, 3)) == [[1, 2]]
    request.num_computed_tokens = 3
    assert ids(manager.allocate_slots(request, 1)) == [[]]
    request.num_computed_tokens = 4
    assert ids(manager.allocate_slots(request, 1)) == [[3]]


@pytest.mark.parametrize("n", [0, -1])
def test_no_tokens_is_an_error(manager, n):
    with pytest.raises(ValueError, match="request a: num_new_tokens must be positive"):
        manager.allocate_slots(make_request("a", 5), n)


def test_blocks_are_visible_in_the_step_that_schedules_them(manager):
    manager.allocate_slots(make_request("a", 5), 5)
    assert manager.get_computed_blocks(make_request("b", 5))[1] == 4


def test_only_known_tokens_are_cached(manager):
    """Slots for tokens that will come get no key before they are known."""
    request = make_request("a", 3, 9)
    request.num_computed_tokens = 0
    manager.allocate_slots(request, 6)
    assert [block.block_hash is not None for block in manager.block_pool.blocks[1:4]] == [True, False, False]


def test_slots_never_exceed_max_model_len():
    manager = KVCacheManager(7, [full()], 4)
    request = make_request("a", 3, 9)
    assert ids(manager.allocate_slots(request, 9)) == [[1, 2]]


def refusals():
    """name → (prepare, attempt): an allocation that is refused in a world that is not empty."""

    def occupied(manager):
        manager.allocate_slots(make_request("holder", [9] * 5), 5)

    def evictable(manager):
        """A cached prefix that nobody holds, and a holder of three blocks."""
        first = make_request("first", 6)
        manager.allocate_slots(first, 6)
        manager.free(first)
        occupied(manager)

    request = make_request("a", 12)

    def with_hits(manager, **more):
        blocks, length = manager.get_computed_blocks(request)
        assert length == 6
        return manager.allocate_slots(request, 6, length, blocks, **more)

    return {
        "too many new blocks": (occupied, lambda m: m.allocate_slots(request, 12)),
        "the whole sequence does not fit": (
            occupied,
            lambda m: m.allocate_slots(request, 2, full_sequence_must_fit=True),
        ),
        "the watermark": (occupied, lambda m: m.allocate_slots(request, 6, watermark_blocks=1)),
        "hits that stop being free": (evictable, with_hits),
        "hits and the whole sequence": (evictable, lambda m: with_hits(m, full_sequence_must_fit=True)),
    }


@pytest.mark.parametrize("kind", refusals())
def test_a_refused_allocation_changes_nothing(manager, kind):
    prepare, attempt = refusals()[kind]
    prepare(manager)
    before = state(manager)
    assert attempt(manager) is None
    assert state(manager) == before


def test_exactly_what_is_free_fits(manager):
    assert manager.allocate_slots(make_request("a", 12), 12, full_sequence_must_fit=True) is not None
    assert manager.usage == 1.0
    manager.check()


def test_hits_are_taken_before_new_blocks(manager):
    """Otherwise the new blocks would evict the hit ones: the free queue holds them at its front."""
    first = make_request("first", 12)
    manager.allocate_slots(first, 12)
    manager.free(first)
    request = make_request("a", [*range(8), *[7] * 4])
    blocks, length = manager.get_computed_blocks(request)
    assert (length, ids(blocks)) == (8, [[1, 2, 3, 4]])
    assert ids(manager.allocate_slots(request, 4, length, blocks)) == [[6, 5]]
    assert [block.ref_cnt for block in blocks[0]] == [1, 1, 1, 1]
    manager.check()


def test_hits_that_others_hold_need_no_free_block(manager):
    first = make_request("first", 8)
    manager.allocate_slots(first, 8)
    request = make_request("a", [*range(8), 7, 7, 7, 7])
    blocks, length = manager.get_computed_blocks(request)
    assert ids(manager.allocate_slots(request, 4, length, blocks, full_sequence_must_fit=True)) == [[5, 6]]
    assert [block.ref_cnt for block in manager.block_pool.blocks[1:7]] == [2, 2, 2, 2, 1, 1]


def test_the_watermark_stays_free(manager):
    assert manager.allocate_slots(make_request("a", 8), 8, watermark_blocks=2) is not None
    assert manager.allocate_slots(make_request("b", [8, 8]), 2, watermark_blocks=2) is None
    assert manager.allocate_slots(make_request("b", [8, 8]), 2) is not None


def test_a_window_counts_what_it_can_hold_at_once():
    """Window 5, 4 tokens a step: at most 8 tokens and a block of misalignment: 5 of the 6 blocks."""
    manager = KVCacheManager(7, [sliding(5)], 64, max_admission_tokens=4)
    request = make_request("a", 60)
    assert manager.coordinator.managers[0].max_blocks_held() == 5
    assert manager.allocate_slots(request, 4, full_sequence_must_fit=True) is not None
    assert manager.allocate_slots(make_request("b", 60, salt="b"), 4, full_sequence_must_fit=True) is None


def test_what_is_in_flight_keeps_its_window():
    """Windows free by processed tokens: what is in flight may still be read."""
    manager = KVCacheManager(20, [sliding(3)], 64)
    request = make_request("a", 12, 9)
    manager.allocate_slots(request, 8)
    request.num_computed_tokens, request.num_inflight_tokens = 8, 8
    manager.allocate_slots(request, 2)
    assert ids(manager.coordinator.get_blocks("a")) == [[1, 2, 3, 4, 5]]
    request.num_computed_tokens, request.num_inflight_tokens = 10, 2
    manager.allocate_slots(request, 2)
    assert ids(manager.coordinator.get_blocks("a")) == [[0, 0, 0, 4, 5, 6]]


def test_freed_tables_are_evicted_tail_first(manager):
    request = make_request("a", 5, 9)
    manager.allocate_slots(request, 5)
    manager.free(request)
    assert [b.block_id for b in manager.block_pool.free_block_queue.get_all_free_blocks()] == [3, 4, 5, 6, 2, 1]
    manager.check()


def test_freeing_what_has_nothing_is_nothing(manager):
    before = state(manager)
    manager.free(make_request("nobody", 4))
    assert state(manager) == before


def test_groups_draw_from_one_pool():
    manager = KVCacheManager(7, [full(), full()], 64)
    assert ids(manager.allocate_slots(make_request("a", 5), 5)) == [[1, 2, 3], [4, 5, 6]]
    assert manager.allocate_slots(make_request("b", 1), 1) is None
