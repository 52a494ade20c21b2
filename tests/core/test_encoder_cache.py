"""The encoder cache, and how its room shortens chunks."""

from __future__ import annotations

import pytest
from tiny_worlds import make_request

from sim.core.encoder_cache import EncoderCacheManager
from sim.core.encoder_scheduling import plan_encoder_inputs
from sim.errors import InvariantError


def viewer(name, *items):
    """A request whose items (identifier, length) stand one after another."""
    placed, at = [], 0
    for identifier, length in items:
        placed.append((identifier, at, length))
        at += length
    return make_request(name, max(at, 1), items=placed)


@pytest.fixture
def cache():
    return EncoderCacheManager(10)


def put(cache, request, index=0, budget=100):
    assert cache.can_allocate(request, index, budget, 0)
    cache.allocate(request, index)
    cache.check()


def room(cache):
    cache.check()
    return cache.num_free_slots, cache.num_freeable_slots


class TestCache:
    def test_it_counts_embeddings(self, cache):
        a = viewer("a", ("x", 4), ("y", 3))
        assert not cache.check_and_update_cache(a, 0)
        put(cache, a, 0)
        put(cache, a, 1)
        assert room(cache) == (3, 3)
        assert cache.get_cached_input_ids(a) == [0, 1]

    def test_what_nobody_holds_stays_until_its_space_is_needed(self, cache):
        a = viewer("a", ("x", 6))
        put(cache, a)
        cache.free(a)
        assert room(cache) == (4, 10)
        assert cache.check_and_update_cache(viewer("b", ("x", 6)), 0)
        assert room(cache) == (4, 4)

    def test_the_one_released_first_goes_first(self, cache):
        requests = {name: viewer(name, (name, 3)) for name in "abc"}
        for request in requests.values():
            put(cache, request)
        for name in "bac":
            cache.free(requests[name])
        put(cache, viewer("d", ("d", 4)))
        assert set(cache.holders) == {"a", "c", "d"}
        put(cache, viewer("e", ("e", 6)))
        assert set(cache.holders) == {"d", "e"}
        assert room(cache) == (0, 0)

    def test_only_as_many_go_as_are_needed(self, cache):
        for name in "abc":
            request = viewer(name, (name, 3))
            put(cache, request)
            cache.free(request)
        put(cache, viewer("d", ("d", 1)))
        assert set(cache.holders) == {"a", "b", "c", "d"}

    def test_held_entries_never_go(self, cache):
        a = viewer("a", ("x", 6))
        put(cache, a)
        b = viewer("b", ("y", 5))
        assert not cache.can_allocate(b, 0, 100, 0)
        assert room(cache) == (4, 4)

    def test_what_is_promised_in_the_step_counts(self, cache):
        b = viewer("b", ("y", 5))
        assert cache.can_allocate(b, 0, 100, 5)
        assert not cache.can_allocate(b, 0, 100, 6)

    @pytest.mark.parametrize(("budget", "fits"), [(4, False), (5, True)])
    def test_the_budget_of_a_step(self, cache, budget, fits):
        assert cache.can_allocate(viewer("b", ("y", 5)), 0, budget, 0) is fits

    def test_it_is_shared_by_identifier_and_each_holder_counts(self, cache):
        a, b = viewer("a", ("x", 4)), viewer("b", ("x", 4))
        put(cache, a)
        assert cache.check_and_update_cache(b, 0)
        cache.free_encoder_input(a, 0)
        assert room(cache) == (6, 6)
        cache.free_encoder_input(b, 0)
        assert room(cache) == (6, 10)

    def test_releasing_twice_or_what_is_not_there_is_nothing(self, cache):
        a, b = viewer("a", ("x", 4)), viewer("b", ("z", 4))
        put(cache, a)
        for _ in range(2):
            cache.free_encoder_input(a, 0)
            cache.free_encoder_input(b, 0)
        assert room(cache) == (6, 10)

    def test_check_finds_slots_that_are_lost(self, cache):
        put(cache, viewer("a", ("x", 4)))
        cache.num_free_slots += 1
        with pytest.raises(InvariantError, match="law 12"):
            cache.check()

    def test_check_finds_an_entry_that_is_held_and_may_go(self, cache):
        put(cache, viewer("a", ("x", 4)))
        cache.freeable["x"] = 4
        with pytest.raises(InvariantError, match="law 12"):
            cache.check()


class TestPlan:
    """A prompt of 20 tokens with items at [4, 8) and [10, 15)."""

    @pytest.fixture
    def request_(self):
        return make_request("a", 20, items=[("x", 4, 4), ("y", 10, 5)])

    @staticmethod
    def plan(cache, request, computed, new, budget=100, whole=False):
        found = plan_encoder_inputs(cache, request, computed, new, budget, whole)
        return found.inputs, found.num_new_tokens, found.budget

    @pytest.mark.parametrize(
        ("computed", "new", "inputs", "left"),
        [
            (0, 4, [], 100),  # ends where the first begins
            (0, 5, [0], 96),  # one of its tokens is enough
            (0, 20, [0, 1], 91),
            (8, 2, [], 100),  # between them
            (8, 3, [1], 95),
            (15, 5, [], 100),  # behind both
            (7, 1, [0], 96),  # the hit ends inside the first
        ],
    )
    def test_items_are_encoded_whole_when_first_needed(self, request_, computed, new, inputs, left):
        assert self.plan(EncoderCacheManager(10), request_, computed, new) == (inputs, new, left)

    def test_one_that_does_not_fit_the_budget_cuts_the_chunk_before_it(self, request_):
        assert self.plan(EncoderCacheManager(10), request_, 0, 20, budget=8) == ([0], 10, 4)
        assert self.plan(EncoderCacheManager(10), request_, 0, 20, budget=3) == ([], 4, 3)

    def test_one_that_does_not_fit_the_cache_cuts_the_chunk_before_it(self, request_):
        assert self.plan(EncoderCacheManager(8), request_, 0, 20) == ([0], 10, 96)

    @pytest.mark.parametrize("computed", [4, 5, 7])
    def test_a_hit_past_its_start_leaves_nothing(self, request_, computed):
        assert self.plan(EncoderCacheManager(2), request_, computed, 20 - computed) == ([], 0, 100)

    def test_what_is_cached_costs_nothing_and_is_held(self, request_):
        cache = EncoderCacheManager(10)
        other = viewer("b", ("x", 4))
        put(cache, other)
        cache.free(other)
        assert self.plan(cache, request_, 0, 8, budget=0) == ([], 8, 0)
        assert cache.holders["x"] == {("a", 0)}

    def test_chunks_may_not_split_an_item(self, request_):
        cache = EncoderCacheManager(10)
        assert self.plan(cache, request_, 0, 6, whole=True) == ([], 4, 100)
        assert self.plan(cache, request_, 0, 8, whole=True) == ([0], 8, 96)
        assert self.plan(cache, request_, 4, 2, whole=True) == ([], 0, 100), "nothing is left before it"
        assert self.plan(cache, request_, 5, 2, whole=True) == ([0], 2, 96), "a hit inside has split it already"

    def test_the_same_item_twice_is_encoded_once(self):
        request = make_request("a", 20, items=[("x", 2, 4), ("x", 10, 4)])
        assert self.plan(EncoderCacheManager(5), request, 0, 20, budget=4) == ([0], 20, 0)
        assert plan_encoder_inputs(EncoderCacheManager(5), request, 0, 20, 4, False).repeats == [1]
