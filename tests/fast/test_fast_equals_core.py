"""On random tiny worlds the fast path tells exactly what the readable engine tells."""

import dataclasses

import pytest
from fast_worlds import Rows, UnevenSteps, World, play, worlds
from hypothesis import HealthCheck, given, settings

from sim.core.cache_groups import KVCacheGroup
from sim.core.scheduler_config import SchedulerConfig
from sim.engine.reference import ReferenceEngine
from sim.fast.engine import FastEngine
from workloads.spec import MultiModalItem, RequestSpec, Segment


def compare(world):
    told = []
    for make in (ReferenceEngine, FastEngine):
        rows = Rows()
        decider = make(world.config, UnevenSteps(world.jitter), rows, check_invariants=True)
        ended = play(decider, world)
        if make is FastEngine:
            decider.take_ended()
            free = decider.scheduler.pool.free_blocks().tolist()
        else:
            queue = decider.scheduler.kv_cache_manager.block_pool.free_block_queue
            free = [block.block_id for block in queue.get_all_free_blocks()]
        told.append((ended, rows.rows, free))
    (ended, rows, free), (fast_ended, fast_rows, fast_free) = told
    for table in rows:
        for number, (expected, got) in enumerate(zip(rows[table], fast_rows[table], strict=False)):
            assert got == expected, (table, number)
        assert len(fast_rows[table]) == len(rows[table]), table
    assert fast_ended == ended
    assert fast_free == free
    return ended


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(asynchronous=False))
def test_synchronous(world):
    compare(world)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(asynchronous=True))
def test_asynchronous(world):
    compare(world)


@pytest.mark.long
@settings(max_examples=10000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_many(world):
    compare(world)


def test_a_decode_behind_a_chunk_that_takes_the_whole_budget_is_left_without():
    config = SchedulerConfig(
        num_gpu_blocks=12,
        groups=(KVCacheGroup("full", 2),),
        max_num_seqs=3,
        max_num_batched_tokens=5,
        max_model_len=32,
        disable_chunked_mm_input=True,
    )
    image = RequestSpec("r0", 0.0, (Segment(1, 0, 7),), 1, 10, mm_items=(MultiModalItem("a", 1, 5),))
    short = RequestSpec("r1", 0.0, (Segment(2, 0, 1),), 4, 11)
    compare(World(config, [image, short], [], 0.0))


def unlike(*lengths):
    """Requests that share nothing and come at once: tokens of prompt and answer."""
    return [
        RequestSpec(f"r{number}", 0.0, (Segment(number, 0, prompt),), answer, 10 + number)
        for number, (prompt, answer) in enumerate(lengths)
    ]


def test_what_was_found_out_of_a_request_that_starts_is_not_said_of_the_next():
    config = SchedulerConfig(
        num_gpu_blocks=15,
        groups=(KVCacheGroup("full", 1),),
        max_num_seqs=4,
        max_num_batched_tokens=5,
        max_model_len=16,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
    )
    # the third fits only the budget that the second leaves once it decodes; the fourth would fit the rest
    compare(World(config, unlike((1, 6), (3, 5), (3, 2), (1, 1)), [], 0.0))


def test_a_quoted_answer_has_its_keys_while_its_last_token_is_in_flight():
    config = SchedulerConfig(
        num_gpu_blocks=12,
        groups=(KVCacheGroup("full", 3),),
        max_num_seqs=2,
        max_num_batched_tokens=3,
        max_model_len=32,
        async_scheduling=True,
    )
    first = RequestSpec("r0", 0.0, (Segment(1, 0, 10),), 5, 10)
    for arrival in (5.0, 6.0, 7.0, 8.0):
        quoting = RequestSpec("r1", arrival, (Segment(1, 0, 10), Segment(10, 0, 3)), 1, 11)
        compare(World(config, [first, quoting], [], 0.0))


def test_a_key_that_a_decode_gives_lets_a_waiting_request_start_in_the_same_step():
    config = SchedulerConfig(
        num_gpu_blocks=9,
        groups=(KVCacheGroup("full", 2),),
        max_num_seqs=2,
        max_num_batched_tokens=8,
        max_model_len=17,
        watermark=0.2,
        scheduler_reserve_full_isl=False,
    )
    first = RequestSpec("r0", 0.0, (Segment(1, 0, 8),), 5, 10)
    quoting = RequestSpec("r1", 0.0, (Segment(1, 0, 8), Segment(10, 0, 5)), 1, 11)
    compare(World(config, [first, quoting], [], 0.0))


def test_two_that_take_each_others_blocks_in_turn_come_to_an_end():
    config = SchedulerConfig(
        num_gpu_blocks=6,
        groups=(KVCacheGroup("full", 1),),
        max_num_seqs=2,
        max_num_batched_tokens=3,
        max_model_len=16,
        enable_prefix_caching=False,
        scheduling_policy="priority",
        long_prefill_token_threshold=1,
        scheduler_reserve_full_isl=False,
    )
    specs = unlike((1, 1), (3, 2), (1, 5))
    for asynchronous in (False, True):
        told = compare(World(dataclasses.replace(config, async_scheduling=asynchronous), specs, [], 0.0))
        assert [end[1] for end in told].count("finished") >= 2
    rejected = compare(World(config, specs, [], 0.0))[1]
    assert rejected[:3] == (
        2,
        "rejected",
        "it gives way at 5 tokens again and again to 1 request that cannot go on beside it (5 usable blocks)",
    )
