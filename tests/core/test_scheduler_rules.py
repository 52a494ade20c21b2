"""Rules of a step, one tiny story each.  (Random worlds check the laws; the recordings check the rest.)"""

from __future__ import annotations

import pytest
from tiny_worlds import Engine, config, make_request, serve

from sim.core.request import RequestStatus


def engine_with(num_blocks, *requests, **settings):
    engine = Engine(config(num_blocks, **settings))
    engine.add(*requests)
    return engine


def other(name, length=4, answer=1, **more):
    """A request whose tokens nobody else has."""
    return make_request(name, [1000 * ord(name[0]) + j for j in range(length)], answer, **more)


class TestChunks:
    def test_a_prompt_is_taken_in_chunks_of_the_budget(self):
        engine = engine_with(20, other("a", 10, 2), max_num_batched_tokens=4)
        assert engine.run() == [{"a": 4}, {"a": 4}, {"a": 2}, {"a": 1}]

    def test_running_requests_go_before_waiting_ones(self):
        engine = engine_with(20, other("a", 3, 3), max_num_batched_tokens=4)
        engine.step()
        engine.add(other("b", 9))
        assert engine.run() == [{"a": 1, "b": 3}, {"a": 1, "b": 3}, {"b": 3}]

    def test_without_chunks_one_that_does_not_fit_the_budget_ends_the_loop(self):
        engine = engine_with(20, other("a", 3), other("b", 4), other("c", 1), max_num_batched_tokens=5,
                             enable_chunked_prefill=False)  # fmt: skip
        assert engine.run() == [{"a": 3}, {"b": 4, "c": 1}]

    def test_a_long_prefill_is_capped_only_beside_others(self):
        engine = engine_with(30, other("a", 9, 1), long_prefill_token_threshold=2)
        assert engine.run() == [{"a": 9}]
        engine.add(other("b", 5), other("c", 1))
        assert engine.run() == [{"b": 2, "c": 1}, {"b": 3}]

    def test_the_last_token_that_fits_max_model_len_is_not_computed(self):
        engine = engine_with(20, other("a", 5, 50), max_model_len=8)
        assert engine.run() == [{"a": 5}, {"a": 1}, {"a": 1}]

    def test_block_size_one(self):
        engine = Engine(config(8))
        engine = Engine(config(8, groups=[type(engine.scheduler.config.groups[0])("full", 1)]))
        first, again, longer = (make_request(name, n, 2, block_size=1) for name, n in (("a", 5), ("b", 5), ("c", 6)))
        assert serve(engine, first, again, longer) == [0, 4, 5]


class TestHits:
    def test_a_hit_of_the_whole_prompt_computes_its_last_block(self):
        engine = Engine(config(20))
        assert serve(engine, make_request("a", 8), make_request("b", 8)) == [0, 6]
        assert engine.steps[-1].scheduled["b"].num_tokens == 2

    def test_equal_prompts_in_one_step_hit_at_once(self):
        engine = engine_with(20, make_request("a", 8), make_request("b", 8))
        assert engine.step() == {"a": 8, "b": 2}

    def test_hits_are_counted_once_not_at_each_chunk(self):
        engine = Engine(config(20, max_num_batched_tokens=3))
        serve(engine, make_request("a", 6), make_request("b", [*range(6), *range(50, 58)]))
        queries = [(s.prefix_cache_stats.queries, s.prefix_cache_stats.hits) for s in engine.steps]
        assert queries == [(6, 0), (0, 0), (14, 6), (0, 0), (0, 0)]

    def test_a_conversation_goes_on_in_its_own_answer(self):
        first = make_request("a", 5, 6)
        engine = Engine(config(20))
        serve(engine, first)
        whole = first.token_ids(0, 11)
        assert serve(engine, make_request("b", [*whole, 1, 2])) == [10]

    def test_recomputing_after_preemption_is_counted_apart(self):
        a, b = other("a", 4, 6), other("b", 4, 6)
        engine = engine_with(6, a, b)
        engine.run()
        assert b.num_preemptions == 1
        stats = [step.prefix_cache_stats for step in engine.steps]
        assert (sum(s.queries for s in stats), sum(s.requests for s in stats)) == (8, 2)
        assert sum(s.preempted_requests for s in stats) == 1
        assert b.num_cached_tokens == 0, "what it finds of its own does not count as a hit at admission"


class TestPhantomHits:
    """Priority, with a watcher `r2` that reads what the preempted `r0` would have computed (a public report)."""

    @pytest.fixture
    def story(self):
        settings = {"scheduling_policy": "priority", "long_prefill_token_threshold": 8, "max_num_batched_tokens": 16}
        engine = Engine(config(11, [type(config(1).groups[0])("full", 4)], **settings, max_num_seqs=4))
        r0 = make_request("r0", 40, 2, priority=9, block_size=4)
        r1 = other("r1", 3, 4, priority=0, arrival_time=1.0, block_size=4)
        r2 = make_request("r2", [*range(36), 7, 7, 7], 2, priority=9, arrival_time=7.0, block_size=4)
        engine.add(r0)
        engine.step()
        engine.add(r1)
        return engine, r0, r1, r2

    def test_keys_of_a_chunk_that_never_ran_are_hit_and_counted(self, story):
        engine, r0, r1, r2 = story
        engine.run()
        assert r0.num_preemptions == 1
        preempting = next(step for step in engine.steps if step.preempted)
        assert preempting.preempted == [r0]
        # when it resumes, the reference believes 36 of its tokens computed; 32 were, the last 4 never
        assert r0.num_phantom_hit_tokens == 4
        engine.add(r2)
        engine.run()
        assert r2.num_cached_tokens == 36
        assert r1.num_phantom_hit_tokens == 0

    def test_a_block_is_no_phantom_once_it_has_been_evicted(self, story):
        engine, *_ = story
        engine.run()
        phantoms = [block.block_id for block in engine.pool.blocks if block.is_phantom]
        engine.pool.evict_blocks(phantoms)
        assert not any(block.is_phantom for block in engine.pool.blocks)


class TestPreemption:
    def test_first_come_first_served_takes_the_last_running(self):
        a, b, c = (other(name, 4, 8) for name in "abc")
        engine = engine_with(6, a, b, c)
        engine.step()
        engine.step()
        assert engine.running == ["a", "b"]
        assert engine.waiting == ["c"]
        assert (c.status, c.num_computed_tokens, c.num_output_tokens) == (RequestStatus.PREEMPTED, 0, 1)

    def test_one_that_preempts_itself_ends_the_loop(self):
        a, b = other("a", 4, 8), other("b", 5, 8)
        engine = engine_with(5, a, b)
        engine.step()
        output = engine.schedule()
        assert [request.request_id for request in output.preempted] == ["b"]
        assert list(output.scheduled) == ["a"]

    def test_priority_takes_the_largest_priority_then_the_latest(self):
        requests = [
            other("a", 4, 8, priority=1, arrival_time=0.0),
            other("b", 4, 8, priority=5, arrival_time=1.0),
            other("c", 4, 8, priority=5, arrival_time=0.0),
        ]
        engine = engine_with(6, *requests, scheduling_policy="priority")
        engine.step()
        engine.step()
        assert engine.waiting == ["b"]

    def test_among_equals_the_first_in_running_order_goes(self):
        engine = engine_with(4, other("a", 4, 8), other("b", 4, 8), scheduling_policy="priority")
        engine.step()
        output = engine.schedule()
        assert [request.request_id for request in output.preempted] == ["a"]

    def test_a_victim_already_scheduled_leaves_the_batch(self):
        """In the fourth step `a` has its slot when `b` finds no blocks for its next chunk."""
        a = other("a", 3, 9, priority=5)
        b = other("b", 14, 1, priority=0, arrival_time=1.0)
        engine = engine_with(8, a, scheduling_policy="priority", max_num_batched_tokens=5,
                             scheduler_reserve_full_isl=False)  # fmt: skip
        engine.step()
        engine.add(b)
        assert [engine.step() for _ in range(2)] == [{"a": 1, "b": 4}] * 2
        output = engine.schedule()
        assert output.preempted == [a]
        assert {name: entry.num_tokens for name, entry in output.scheduled.items()} == {"b": 4}
        engine.apply(output)
        assert a.num_output_tokens == 3
        engine.run()
        assert engine.ended == ["b", "a"]

    def test_nobody_is_admitted_in_a_step_that_preempts(self):
        engine = engine_with(4, other("a", 4, 8), other("b", 4, 8))
        engine.step()
        engine.add(other("c", 1))
        output = engine.schedule()
        assert output.preempted
        assert "c" not in output.scheduled

    def test_it_resumes_with_the_answers_that_it_knows(self):
        a, b = other("a", 4, 6), other("b", 4, 6)
        engine = engine_with(6, a, b)
        engine.run()
        assert engine.ended == ["a", "b"]
        assert (a.num_output_tokens, b.num_output_tokens) == (6, 6)
        resumed = [step.scheduled["b"] for step in engine.steps if "b" in step.scheduled and step.scheduled["b"].starts]
        assert len(resumed) == 2


class TestAdmission:
    def test_the_first_that_does_not_fit_blocks_the_rest(self):
        engine = engine_with(6, other("a", 6, 9), other("b", 8), other("c", 1))
        assert engine.step() == {"a": 6}
        assert engine.waiting == ["b", "c"]

    def test_the_watermark_does_not_hold_in_an_empty_engine(self):
        engine = engine_with(9, other("a", 16), watermark=0.5)
        assert engine.step() == {"a": 16}

    def test_the_watermark_holds_while_something_runs(self):
        engine = engine_with(9, other("a", 2, 4), other("b", 8), other("c", 1), watermark=0.5)
        assert engine.step() == {"a": 2}
        assert engine.waiting == ["b", "c"]

    def test_max_num_seqs(self):
        engine = engine_with(20, *(other(name, 2, 2) for name in "abc"), max_num_seqs=2)
        assert engine.run() == [{"a": 2, "b": 2}, {"a": 1, "b": 1}, {"c": 2}, {"c": 1}]

    def test_one_over_the_lora_limit_is_skipped_and_keeps_its_place(self):
        requests = [
            other("a", 2, 2, lora="x"),
            other("b", 2, 2, lora="y"),
            other("c", 2, 2, lora="x"),
            other("d", 2, 1),
        ]
        engine = engine_with(20, *requests, max_loras=1)
        assert engine.step() == {"a": 2, "c": 2, "d": 2}
        assert engine.waiting == ["b"]
        engine.add(other("e", 2, 1))
        assert engine.step() == {"a": 1, "c": 1, "e": 2}
        assert engine.step() == {"b": 2}

    def test_an_id_that_lives_is_refused(self):
        engine = engine_with(20, other("a"))
        with pytest.raises(ValueError, match="request id 'a' is in use"):
            engine.add(other("a"))
        engine.run()
        engine.add(other("a"))
        engine.run()
        assert engine.ended == ["a", "a"]


class TestEncoder:
    def test_a_request_that_is_not_admitted_gives_its_references_back(self):
        """`b` finds the picture of `a` in the cache, but no blocks."""
        a = make_request("a", 8, 9, items=[("pic", 0, 4)])
        b = make_request("b", [*range(50, 60)], 1, items=[("pic", 0, 4)])
        engine = engine_with(8, a, b)
        engine.step()
        assert engine.waiting == ["b"]
        assert engine.scheduler.encoder_cache.holders["pic"] == set()

    def test_an_item_is_released_when_it_is_wholly_computed(self):
        a = make_request("a", 8, 3, items=[("pic", 1, 4)])
        engine = engine_with(8, a, max_num_batched_tokens=4)
        engine.step()
        assert engine.scheduler.encoder_cache.holders["pic"] == {("a", 0)}
        engine.step()
        assert engine.scheduler.encoder_cache.holders["pic"] == set()

    def test_the_same_item_twice_is_held_until_its_last_use_ends(self):
        a = make_request("a", 12, 3, items=[("pic", 0, 4), ("pic", 6, 4)])
        engine = engine_with(8, a, max_num_batched_tokens=7)
        holders = engine.scheduler.encoder_cache.holders
        output = engine.schedule()
        assert holders["pic"] == {("a", 0), ("a", 1)}
        engine.apply(output)
        assert holders["pic"] == {("a", 1)}
        engine.step()
        assert holders["pic"] == set()

    def test_a_preempted_request_holds_no_item(self):
        """`b` is preempted while half of its picture is computed."""
        a, b = other("a", 4, 8), make_request("b", [*range(50, 62)], 8, items=[("pic", 2, 8)])
        engine = engine_with(6, a, b, max_num_batched_tokens=4, scheduler_reserve_full_isl=False, encoder_cache_size=8,
                             max_num_encoder_input_tokens=8)  # fmt: skip
        assert [engine.step() for _ in range(3)] == [{"a": 4}, {"a": 1, "b": 3}, {"a": 1, "b": 3}]
        assert engine.scheduler.encoder_cache.holders["pic"] == {("b", 0)}
        engine.step()
        assert b.num_preemptions == 1
        assert engine.scheduler.encoder_cache.holders["pic"] == set()


class TestAborts:
    def test_in_every_state(self):
        a, b, c = other("a", 4, 8), other("b", 4, 8), other("c", 4)
        engine = engine_with(4, a, b)
        engine.step()
        engine.step()
        assert (a.status, b.status) == (RequestStatus.RUNNING, RequestStatus.PREEMPTED)
        engine.add(c)
        engine.abort("a", "b", "c", "nobody")
        assert not engine.scheduler.has_requests()
        assert len(engine.free()) == 4
        engine.abort("a")

    def test_between_schedule_and_result(self):
        a, b = other("a", 4, 8), other("b", 4, 1)
        engine = engine_with(9, a, b)
        output = engine.schedule()
        engine.abort("a")
        engine.apply(output)
        assert engine.ended == ["b"]
        assert a.num_output_tokens == 0
        assert len(engine.free()) == 9

    def test_a_new_request_of_the_same_id_is_another(self):
        old, new = other("a", 4, 8), other("a", 6, 2)
        engine = engine_with(9, old)
        output = engine.schedule()
        engine.abort("a")
        engine.add(new)
        engine.apply(output)
        assert (old.num_output_tokens, new.num_output_tokens) == (0, 0)
        engine.run()
        assert engine.ended == ["a"]


class TestStopping:
    def test_the_model_may_stop_before_the_cap(self):
        engine = engine_with(9, other("a", 4, 8))
        output = engine.schedule()
        ended = engine.scheduler.update_from_output(output, {"a"})
        assert [request.status for request in ended] == [RequestStatus.FINISHED_STOPPED]

    def test_at_max_tokens(self):
        a = other("a", 4, 2)
        engine_with(9, a).run()
        assert (a.status, a.num_output_tokens) == (RequestStatus.FINISHED_LENGTH_CAPPED, 2)

    def test_at_max_model_len(self):
        a = other("a", 4, 50)
        engine_with(9, a, max_model_len=10).run()
        assert (a.status, a.num_tokens) == (RequestStatus.FINISHED_LENGTH_CAPPED, 10)
