"""What each policy is for, each in the smallest world that shows it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_pool import TinyPool

from sim.core.block import key_hash
from sim.eviction.facts import Origin
from sim.eviction.registry import POLICIES


def survivors(world: TinyPool, *singles: int) -> set[int]:
    """Which of these one-block chains are cached."""
    return {token for token in singles if world.cached(token)}


@settings(max_examples=60, deadline=None)
@given(requests=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=15), blocks=st.integers(1, 6))
@pytest.mark.parametrize("policy", ["leaf_lru", "ttl", "lru_k", "slru"])
def test_policies_that_become_lru(policy: str, requests: list[list[int]], blocks: int) -> None:
    """Leaf LRU without blocks in use, one time to live for all, K = 1, no room for the protected."""
    params = {"lru_k": {"k": 1}, "slru": {"protected_share": 0.0}}.get(policy, {})
    world, reference = TinyPool(policy, blocks, **params), TinyPool("lru", blocks)
    for tokens in requests:
        assert world.serve(*tokens) == reference.serve(*tokens)


def test_lru_evicts_a_tail_before_its_head() -> None:
    world = TinyPool("lru", 3)
    world.serve(0, 1, 2)
    world.serve(5)
    assert world.cached(0, 1)
    assert not world.cached(0, 1, 2)


def test_fifo_ignores_hits() -> None:
    world = TinyPool("fifo", 2)
    for token in (0, 1, 0, 2):
        world.serve(token)
    assert survivors(world, 0, 1, 2) == {1, 2}


def test_random_depends_on_its_seed_only() -> None:
    def outcome(seed: int) -> list[int]:
        world = TinyPool("random", 3, seed=seed)
        return [world.serve(token % 5) for token in range(40)]

    assert outcome(1) == outcome(1)
    assert len({tuple(outcome(seed)) for seed in range(5)}) > 1


def test_lfu_keeps_what_is_used_often() -> None:
    world = TinyPool("lfu", 2)
    for token in (0, 0, 0, 1, 2):
        world.serve(token)
    assert survivors(world, 0, 1, 2) == {0, 2}


def test_lfu_lets_old_fame_fade_only_with_aging() -> None:
    def still_there(aging: bool) -> bool:
        world = TinyPool("lfu", 2, aging=aging)
        for token in (0, 0, 0, 1, 2, 3, 4, 5, 6):
            world.serve(token)
        return world.cached(0)

    assert still_there(aging=False)
    assert not still_there(aging=True)


def test_lru_k_prefers_blocks_used_twice_and_remembers_evicted_ones() -> None:
    world = TinyPool("lru_k", 2)
    for token in (0, 0, 1, 2):
        world.serve(token)
    assert survivors(world, 0, 1, 2) == {0, 2}
    world.serve(1)  # its second use, though it was evicted between
    world.serve(3)  # 0 has the older second last use
    assert survivors(world, 0, 1, 2, 3) == {1, 3}


def test_slru_protects_what_was_hit() -> None:
    world = TinyPool("slru", 4, protected_share=0.5)
    for token in (0, 0, 1, 2, 3, 4, 5, 6):
        world.serve(token)
    assert survivors(world, 0, 1, 2, 3, 4, 5, 6) == {0, 4, 5, 6}


def test_slru_demotes_what_the_protected_segment_has_no_room_for() -> None:
    world = TinyPool("slru", 4, protected_share=0.5)
    for token in (0, 0, 1, 1, 2, 2, 3, 4):
        world.serve(token)
    assert survivors(world, 0, 1, 2, 3, 4) == {1, 2, 3, 4}


def test_2q_keeps_what_comes_back_after_it_left_the_first_queue() -> None:
    world = TinyPool("2q", 4, in_share=0.25, out_share=1.0)
    for token in (0, 1, 2, 3, 4, 0):  # 0 is evicted by 4 and remembered
        world.serve(token)
    for token in (5, 6, 7, 8):
        world.serve(token)
    assert world.cached(0)
    assert survivors(world, 1, 2, 3, 4, 5) == set()


def test_arc_moves_its_target_towards_the_queue_that_was_too_short() -> None:
    world = TinyPool("arc", 2)
    for token in (0, 0, 1, 2, 1):  # 1 came back although it had just been evicted
        world.serve(token)
    assert world.policy.target == 1.0
    for token in (3, 4, 0):  # 0 had been seen twice, and was evicted too
        world.serve(token)
    assert world.policy.target < 2.0


def test_arc_survives_a_scan() -> None:
    world = TinyPool("arc", 4)
    for token in (0, 0, 1, 1, *range(10, 30)):
        world.serve(token)
    assert survivors(world, 0, 1) == {0, 1}


def test_s3fifo_filters_a_scan_and_remembers() -> None:
    world = TinyPool("s3fifo", 4, small_share=0.25)
    for token in (0, 0, 0, 1, 2, 3, 4, 5, 6):
        world.serve(token)
    assert world.cached(0)  # hit twice in the small queue, so it went on to the main one
    assert not world.cached(1)
    world.serve(2)  # the ghost queue remembers it
    for token in (20, 21, 22, 23):
        world.serve(token)
    assert survivors(world, 0, 1, 2, 3, 4) == {0, 2}


def test_sieve_spares_what_was_hit_once() -> None:
    world = TinyPool("sieve", 3)
    for token in (0, 1, 2, 0, 3):
        world.serve(token)
    assert survivors(world, 0, 1, 2, 3) == {0, 2, 3}
    for token in (4, 5):  # the hand goes on from where it was, not back to 0
        world.serve(token)
    assert survivors(world, 0, 2, 3, 4, 5) == {0, 4, 5}


def test_gdsf_weighs_depth() -> None:
    world = TinyPool("gdsf", 4, attention_blocks=1)
    world.serve(0, 1, 2)  # costs 1, 2, 3
    world.serve(5)
    world.serve(6)
    assert not world.cached(0)
    assert world.cached(0, 1, 2)


@settings(max_examples=80, deadline=None)
@given(
    moves=st.lists(
        st.one_of(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.integers(0, 5)), min_size=3, max_size=30
    ),
    blocks=st.integers(2, 6),
)
def test_leaf_lru_never_leaves_a_block_without_its_parent(moves: list[list[int] | int], blocks: int) -> None:
    world = TinyPool("leaf_lru", blocks)
    running = []
    for move in moves:
        if isinstance(move, list):
            running.append(world.begin(*move)[0])
        elif running:
            world.end(running.pop(move % len(running)))
        keys = {key_hash(key) for key, _ in world.pool.cached_block_hash_to_block.items()}
        assert {key[:-1] for key in keys if len(key) > 1} <= keys


def test_length_aware_takes_the_deepest_of_the_least_used() -> None:
    world = TinyPool("length_aware", 3)
    world.serve(5)
    world.serve(0, 1)
    world.serve(6)
    assert survivors(world, 5, 0, 6) == {5, 0, 6}
    assert not world.cached(0, 1)


def test_workload_aware_learns_which_category_comes_back() -> None:
    requests: list[tuple[str, int]] = []
    for round_ in range(12):
        requests += [("chat", 0), ("batch", 100 + round_)]
    requests += [("chat", 1), ("batch", 2), ("batch", 3)]
    origins = {index: Origin(category) for index, (category, _) in enumerate(requests)}
    world = TinyPool("workload_aware", 3, origins=origins)
    for _, token in requests:
        world.serve(token)
    assert world.cached(0)
    assert world.cached(1)  # least recently used, but of the category that comes back
    assert not world.cached(2)


def test_ttl_keeps_a_category_for_longer() -> None:
    origins = {0: Origin("paid")}
    world = TinyPool("ttl", 2, origins=origins, ttl_s=1.0, categories={"paid": 100.0})
    for token in (0, 1, 2, 3):
        world.serve(token)
    assert survivors(world, 0, 1, 2, 3) == {0, 3}


def test_pinned_heads_and_categories_stay_within_their_share() -> None:
    world = TinyPool("pinned", 4, min_hits=1, share=0.5)
    for token in (0, 0, 1, 2, 3, 4, 5):
        world.serve(token)
    assert world.cached(0)
    world = TinyPool("pinned", 4, categories=["system"], share=0.25, origins={0: Origin("system"), 1: Origin("system")})
    for token in (0, 1, 2, 3, 4, 5):
        world.serve(token)
    assert survivors(world, 0, 1) == {1}, "room for one: the more recent"


@settings(max_examples=60, deadline=None)
@given(requests=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=15), blocks=st.integers(3, 6))
def test_belady_hits_at_least_what_every_other_policy_hits_with_single_blocks(
    requests: list[list[int]], blocks: int
) -> None:
    singles = [[sum(3**i * token for i, token in enumerate(tokens))] for tokens in requests]
    best = TinyPool("belady", blocks, future=singles)
    most = sum(best.serve(*tokens) for tokens in singles)
    for policy in POLICIES:
        world = TinyPool(policy, blocks, future=singles)
        assert sum(world.serve(*tokens) for tokens in singles) <= most
