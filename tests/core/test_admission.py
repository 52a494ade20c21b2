"""Requests that can never end are told, with reason and numbers, and what is behind them goes on."""

from __future__ import annotations

import pytest
from tiny_worlds import config, full, make_request, sliding
from whole_engines import World

from sim.core.admission import Admission


def why(settings, prompt, max_tokens=1, **more):
    return Admission(settings).why_never(make_request("a", prompt, max_tokens, **more))


TIGHT = {"max_num_batched_tokens": 8, "encoder_cache_size": 6, "max_num_encoder_input_tokens": 5}
NEVER = {
    "empty prompt": (config(8), 0, 1, {}, "the prompt is empty"),
    "no output": (config(8), 4, 0, {}, "no output tokens are asked for (max_tokens 0)"),
    "negative output": (config(8), 4, -3, {}, "no output tokens are asked for (max_tokens -3)"),
    "prompt beyond the model": (config(80), 65, 1, {}, "the prompt of 65 tokens is longer than max_model_len 64"),
    "prompt beyond the pool": (config(8), 17, 1, {}, "the prompt of 17 tokens need 9 blocks, the pool has 8"),
    "answer beyond the pool": (config(8), 10, 8, {}, "prompt and answer of 17 tokens need 9 blocks, the pool has 8"),
    "prompt beyond a step": (
        config(32, enable_chunked_prefill=False, max_num_batched_tokens=8), 9, 1, {},
        "the prompt of 9 tokens does not fit max_num_batched_tokens 8 and chunked prefill is off",
    ),
    "item beyond the encoder cache": (
        config(32, **TIGHT | {"max_num_encoder_input_tokens": 20}), 20, 1, {"items": [("i", 2, 7)]},
        "item 'i' of 7 embeddings is larger than the encoder cache: 6",
    ),
    "item beyond the encoder budget": (
        config(32, **TIGHT), 20, 1, {"items": [("i", 2, 6)]},
        "item 'i' of 6 embeddings is larger than a step's encoder budget: 5",
    ),
    "unsplittable item beyond a step": (
        config(32, max_num_batched_tokens=4, encoder_cache_size=9, max_num_encoder_input_tokens=9,
               disable_chunked_mm_input=True), 20, 1, {"items": [("i", 2, 5)]},
        "item 'i' of 5 embeddings is larger than a step's token budget, and chunks may not split it: 4",
    ),
    "an identifier with two lengths": (
        config(32), 20, 1, {"items": [("i", 2, 5), ("i", 9, 4)]},
        "item 'i' has 4 embeddings here and had 5 before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", NEVER)
def test_told_before_it_arrives_with_the_numbers(kind):
    settings, prompt, max_tokens, more, reason = NEVER[kind]
    assert why(settings, prompt, max_tokens, **more) == reason


@pytest.mark.parametrize("kind", NEVER)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_others_end_as_if_it_had_not_come(kind, asynchronous):
    settings, prompt, max_tokens, more, reason = NEVER[kind]
    world = World(settings, asynchronous=asynchronous)
    world.arrive(make_request("before", [50, 51, 52, 53], 2))
    world.arrive(make_request("a", prompt, max_tokens, **more))
    world.arrive(make_request("after", [60, 61, 62, 63, 64], 3))
    world.run()
    assert world.ended == {"before": "length", "a": "rejected", "after": "length"}
    assert world.reasons["a"] == reason


def test_an_identifier_is_known_across_requests():
    admission = Admission(config(32))
    assert admission.why_never(make_request("a", 9, items=[("i", 0, 3)])) is None
    assert admission.why_never(make_request("b", 9, items=[("j", 0, 2)])) is None
    assert admission.why_never(make_request("c", 9, items=[("i", 0, 2)])) == (
        "item 'i' has 2 embeddings here and had 3 before"
    )
    assert admission.why_never(make_request("d", 9, items=[("i", 4, 3)])) is None


FINE = {
    "prompt of exactly all blocks": (config(8), 16, 1, {}),
    "prompt and answer of exactly all blocks": (config(8), 10, 7, {}),
    "the answer's last token needs no slot": (config(8), 1, 16, {}),
    "prompt of exactly a step without chunks": (
        config(32, enable_chunked_prefill=False, max_num_batched_tokens=8), 8, 2, {},
    ),
    "prompt of exactly max_model_len in one step": (config(32), 64, 1, {}),
    "answer cut by max_model_len": (config(32), 60, 100, {}),
    "item of exactly cache and budget": (config(32, **TIGHT), 20, 2, {"items": [("i", 2, 5)]}),
    "unsplittable item of exactly a step": (
        config(32, disable_chunked_mm_input=True, max_num_batched_tokens=4), 12, 1, {"items": [("i", 3, 4)]},
    ),
    "a window lets a long prompt through": (
        config(6, [sliding(5)], max_num_batched_tokens=4, scheduler_reserve_full_isl=False), 50, 2, {},
    ),
    "two groups that share exactly all blocks": (config(8, [full(), full()]), 8, 1, {}),
    "a pool of one block": (config(1), 2, 1, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", FINE)
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_what_just_fits_is_fine(kind, asynchronous, policy):
    settings, prompt, max_tokens, more = FINE[kind]
    world = World(settings, asynchronous=asynchronous, scheduling_policy=policy)
    world.arrive(make_request("a", prompt, max_tokens, **more))
    world.arrive(make_request("b", [*range(30, 32)]))
    world.run()
    assert world.ended == {"a": "length", "b": "length"}


class TestTurningOutOnTheWay:
    """What no arithmetic tells beforehand is rejected as soon as it is certain."""

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_a_prompt_of_max_model_len_in_chunks(self, asynchronous):
        world = World(config(40, max_num_batched_tokens=16), asynchronous=asynchronous)
        world.arrive(make_request("a", 64))
        world.arrive(make_request("b", [70, 71], 2))
        world.run()
        assert world.ended == {"a": "rejected", "b": "length"}
        assert world.reasons["a"].startswith("a prompt of max_model_len (64) tokens does not end")

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_a_window_that_is_alone_and_lacks_blocks(self, asynchronous):
        """A step of 16 tokens needs 8 blocks at once, though a window of 5 can pass through 7."""
        world = World(
            config(7, [sliding(5)], max_num_batched_tokens=16, scheduler_reserve_full_isl=False),
            asynchronous=asynchronous,
        )
        world.arrive(make_request("a", 40))
        world.arrive(make_request("b", [70, 71], 2))
        world.run()
        assert world.ended == {"a": "rejected", "b": "length"}
        assert "7 usable blocks" in world.reasons["a"]

    @pytest.mark.parametrize(("asynchronous", "ends"), [(False, "length"), (True, "rejected")])
    def test_a_window_of_two_batches_in_flight(self, asynchronous, ends):
        """Five blocks hold a window and one batch, not two: with two in flight it would start over for ever."""
        settings = config(5, [sliding(5)], max_num_batched_tokens=4, scheduler_reserve_full_isl=False)
        world = World(settings, asynchronous=asynchronous)
        world.arrive(make_request("a", 50))
        world.arrive(make_request("b", [70, 71], 2))
        world.run()
        assert world.ended == {"a": ends, "b": "length"}

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_one_that_an_empty_engine_does_not_admit(self, asynchronous):
        """The most that the window may hold at once, though never needed, does not fit."""
        world = World(config(6, [sliding(8)], max_num_batched_tokens=8), asynchronous=asynchronous)
        world.arrive(make_request("a", 30))
        world.arrive(make_request("b", [70, 71], 2))
        world.run()
        assert world.ended == {"a": "rejected", "b": "length"}
        assert world.reasons["a"] == "it is not admitted to an empty engine (6 usable blocks)"

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_one_that_outgrew_a_step_before_it_was_preempted(self, asynchronous):
        """Without chunks a preempted request must fit one step with all that it has answered."""
        settings = config(8, enable_chunked_prefill=False, max_num_batched_tokens=8, scheduler_reserve_full_isl=False)
        world = World(settings, asynchronous=asynchronous, enable_prefix_caching=False)
        world.arrive(make_request("a", [50, 51, 52, 53], 10))
        world.arrive(make_request("b", [60, 61, 62, 63], 10))
        world.run()
        assert world.ended == {"a": "length", "b": "rejected"}
        assert "known tokens, max_num_batched_tokens is 8 and chunked prefill is off" in world.reasons["b"]
