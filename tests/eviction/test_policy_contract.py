"""One contract for every policy: whatever happens in a tiny pool, the queue stays a queue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_pool import TinyPool

from sim.core.block import KVCacheBlock
from sim.eviction.registry import POLICIES

# these foresee exactly which block they will give next
FORESEEING = sorted(set(POLICIES) - {"s3fifo", "workload_aware"})

chains = st.lists(st.integers(0, 1), min_size=1, max_size=4)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), chains, st.integers(0, 1)),
        st.tuples(st.just("end"), st.integers(0, 9), st.none()),
        st.tuples(st.just("drop"), st.integers(1, 5), st.none()),
        st.tuples(st.just("reset"), st.none(), st.none()),
    ),
    max_size=30,
)


def play(policy: str, blocks: int, script: list[tuple]) -> list[list[int]]:
    """Run a script, checking after every move; the free list after each."""
    future = [tokens for kind, tokens, _ in script if kind == "begin"]
    world = TinyPool(policy, blocks, future=future)
    running: list[list[KVCacheBlock]] = []
    history = []
    for kind, what, more in script:
        if kind == "begin":
            before = [block.block_id for block in world.pool.free_block_queue.get_all_free_blocks()]
            held, hits = world.begin(*what, keyless=more)
            running.append(held)
            taken = [block.block_id for block in held[hits:]]
            assert set(taken) <= set(before)
        elif kind == "end" and running:
            world.end(running.pop(what % len(running)))
        elif kind == "drop":
            world.pool.evict_blocks([1 + what % blocks])
        elif kind == "reset":
            assert world.pool.reset_prefix_cache() is (not any(running))
        world.pool.check()
        used = {block.block_id for held in running for block in held}
        free = [block.block_id for block in world.pool.free_block_queue.get_all_free_blocks()]
        assert sorted(free) == sorted(set(range(1, blocks + 1)) - used)
        history.append(free)
    return history


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(blocks=st.integers(1, 5), script=moves)
def test_the_queue_stays_a_queue(policy: str, blocks: int, script: list[tuple]) -> None:
    history = play(policy, blocks, script)
    assert play(policy, blocks, script) == history, "same seed, same order"


@pytest.mark.parametrize("policy", FORESEEING)
@settings(max_examples=25, deadline=None)
@given(requests=st.lists(chains, max_size=12), blocks=st.integers(1, 5))
def test_the_front_of_the_order_is_the_next_victim(policy: str, requests: list[list[int]], blocks: int) -> None:
    world = TinyPool(policy, blocks, future=requests)
    for tokens in requests:
        world.serve(*tokens)
    queue = world.pool.free_block_queue
    assert queue.get_all_free_blocks()[0] is queue.popleft()


@pytest.mark.parametrize("policy", POLICIES)
def test_blocks_without_a_key_go_first_and_in_the_given_order(policy: str) -> None:
    world = TinyPool(policy, 4, future=[[0], [1]])
    world.serve(0)
    held = world.pool.get_new_blocks(3)
    world.end(held)
    assert world.pool.free_block_queue.get_all_free_blocks()[:3] == held[::-1]
    assert world.pool.get_new_blocks(3) == held[::-1]
    assert world.cached(0)


@pytest.mark.parametrize("policy", POLICIES)
def test_misuse_is_refused_and_changes_nothing(policy: str) -> None:
    world = TinyPool(policy, 2, future=[[0]])
    held, _ = world.begin(0)
    queue = world.pool.free_block_queue
    with pytest.raises(ValueError, match="free"):
        queue.popleft_n(2)
    with pytest.raises(RuntimeError, match="not free"):
        queue.remove(held[0])
    assert queue.popleft_n(0) == []
    assert queue.num_free_blocks == 1
    world.pool.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_with_room_for_everything_hits_everything(policy: str) -> None:
    requests = [[0, 1, 2], [0, 1], [3], [0, 1, 2, 4], [3]]
    world = TinyPool(policy, 5, future=requests)
    assert [world.serve(*tokens) for tokens in requests] == [0, 2, 0, 3, 1]
