"""Why blocks miss and what evictions cost, by hand: blocks of 2 tokens, steps of 1 s, one cause after another."""

import pytest
from miss_worlds import Played, World, config, spec

from workloads.spec import LoRA, MultiModalItem

pytestmark = pytest.mark.parametrize("implementation", ["reference", "fast"])


def played(implementation, specs, aborts=(), **engine):
    return Played(World(config(**engine), specs, list(aborts)), implementation)


def test_a_new_prompt_was_never_seen(implementation):
    run = played(implementation, [spec("a", 0, 1, 7)])
    assert run.causes(0) == [(0, 3, "never_seen")]  # the half-filled last block is no full block
    assert run.misses[0]["tokens"] == 6


def test_a_known_prefix_hits_and_the_rest_is_new(implementation):
    run = played(implementation, [spec("a", 0, 1, 4), spec("b", 5, 1, 4, tail=4)])
    assert run.causes(1) == [(2, 2, "never_seen")]
    assert (run.tracker.asked_blocks, run.tracker.hit_blocks) == (6, 2)


def test_the_last_token_of_a_known_prompt_is_computed_again(implementation):
    run = played(implementation, [spec("a", 0, 1, 4), spec("b", 5, 1, 4)])
    assert run.causes(1) == [(1, 1, "cap")]


def test_an_evicted_block_names_its_eviction(implementation):
    # 5 usable blocks: a takes 3 (2 with keys), b all 5 and so evicts both of a, tail first
    specs = [spec("a", 0, 1, 5), spec("b", 5, 2, 9), spec("c", 20, 1, 5)]
    run = played(implementation, specs, blocks=6)
    assert run.causes(2) == [(0, 2, "evicted")]
    (miss,) = [m for m in run.misses if m["request_index"] == 2]
    row = miss["evicted_row"]
    assert (miss["evicted_step"], miss["evicted_s"]) == (run.evictions[row]["step"], run.evictions[row]["time_s"])
    assert run.evictions[row]["depth_blocks"] == 0  # that of the run's first block
    assert run.evictions[row]["evicted_for_request_index"] == 1
    of_a = [row for row, eviction in enumerate(run.evictions) if eviction["owner_request_index"] == 0]
    assert [run.costs[row]["recomputed_tokens"] for row in of_a] == [2, 2]
    assert {run.costs[row]["next_request_index"] for row in of_a} == {2}
    assert {run.costs[row]["next_wanted_s"] for row in of_a} == {20.0}


def test_a_better_victim_is_a_free_block_that_nobody_wants_again(implementation):
    # a and x leave one block each; y needs one more than is empty, and a's goes though only a's comes back
    specs = [spec("a", 0, 1, 3), spec("x", 5, 2, 3), spec("y", 10, 3, 7), spec("c", 20, 1, 3)]
    run = played(implementation, specs, blocks=6)
    first = run.evictions[0]
    assert (first["owner_request_index"], first["evicted_for_request_index"]) == (0, 2)
    assert run.costs[0] == {
        "recomputed_tokens": 2,
        "next_request_index": 2 + 1,
        "next_wanted_s": 20.0,
        "better_victim": 1,
    }


def test_no_better_victim_where_the_others_are_wanted_earlier(implementation):
    specs = [spec("a", 0, 1, 3), spec("x", 5, 2, 3), spec("y", 10, 3, 7), spec("c", 20, 2, 3), spec("d", 30, 1, 3)]
    run = played(implementation, specs, blocks=6)
    assert run.evictions[0]["owner_request_index"] == 0
    assert (run.costs[0]["next_request_index"], run.costs[0]["better_victim"]) == (4, 0)


def test_an_eviction_that_nobody_minds_costs_nothing(implementation):
    run = played(implementation, [spec("a", 0, 1, 5), spec("b", 5, 2, 9)], blocks=6)
    assert len(run.costs) == 2
    assert {tuple(cost.values()) for cost in run.costs} == {(0, None, None, 0)}


def test_computed_again_after_a_preemption(implementation):
    # both grow until they do not fit; b is preempted, a takes b's tail, and b comes back to what is left
    specs = [spec("a", 0, 1, 4, output=14), spec("b", 0, 2, 4, output=4)]
    run = played(implementation, specs, blocks=7)
    causes = {miss["cause"] for miss in run.misses if miss["request_index"] == 1}
    assert causes == {"never_seen", "preempted"}
    again = [miss for miss in run.misses if miss["cause"] == "preempted"]
    assert all(run.costs[miss["evicted_row"]]["recomputed_tokens"] > 0 for miss in again)


def test_a_running_request_has_not_computed_it_yet(implementation):
    # a computes 4 tokens a step; b comes when two of a's five blocks are there
    specs = [spec("a", 0, 1, 11), spec("b", 0, 1, 11)]
    run = played(implementation, specs, max_num_batched_tokens=6, long_prefill_token_threshold=4, blocks=20)
    assert run.causes(0) == [(0, 5, "never_seen")]
    assert run.causes(1) == [(2, 3, "not_computed_yet")]


def test_what_an_aborted_request_would_have_computed_was_never_seen(implementation):
    specs = [spec("a", 0, 1, 11), spec("b", 3, 1, 11)]
    run = played(implementation, specs, aborts=[(1.0, 0)], max_num_batched_tokens=4, blocks=20)
    assert run.causes(1) == [(2, 3, "never_seen")]


@pytest.mark.parametrize(
    ("differs", "first", "second"),
    [
        ("lora", {}, {"lora": LoRA("x", 1)}),
        ("lora", {"lora": LoRA("y", 2)}, {"lora": LoRA("x", 1)}),
        ("salt", {"cache_salt": "s"}, {}),
        ("image", {"mm_items": (MultiModalItem("cat", 0, 3),)}, {"mm_items": (MultiModalItem("dog", 0, 3),)}),
        ("several", {"lora": LoRA("x", 1)}, {"cache_salt": "s"}),
    ],
)
def test_the_same_tokens_under_another_key(implementation, differs, first, second):
    run = played(implementation, [spec("a", 0, 1, 7, **first), spec("b", 9, 1, 7, **second)], blocks=20)
    assert [(m["cause"], m["differs"], m["blocks"]) for m in run.misses if m["request_index"] == 1] == [
        ("key_differs", differs, 3)
    ]
    assert run.tracker.differing_blocks.sum() == 3


def test_a_key_differs_only_where_the_tokens_are_the_same(implementation):
    run = played(implementation, [spec("a", 0, 1, 7, lora=LoRA("x", 1)), spec("b", 9, 2, 7)], blocks=20)
    assert run.causes(1) == [(0, 3, "never_seen")]


def test_a_key_differs_only_while_the_other_is_cached(implementation):
    # a's blocks are gone when c asks for the same tokens without its adapter
    specs = [spec("a", 0, 1, 5, lora=LoRA("x", 1)), spec("b", 5, 2, 9), spec("c", 20, 1, 5)]
    run = played(implementation, specs, blocks=6)
    assert run.causes(2) == [(0, 2, "never_seen")]


def test_without_prefix_caching_nothing_is_looked_up(implementation):
    run = played(implementation, [spec("a", 0, 1, 7), spec("b", 5, 1, 7)], enable_prefix_caching=False)
    assert (run.misses, run.costs, run.tracker.asked_blocks) == ([], [], 0)
