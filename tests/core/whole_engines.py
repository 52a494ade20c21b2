"""Whole engines, synchronous and asynchronous, in which every law is checked after every half step.

The loop is that of the reference (see the recordings' description): arrivals and aborts, then a
batch is put in flight; with asynchronous scheduling up to two are, before the oldest is applied.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

from sim.core.admission import Admission
from sim.core.async_scheduler import AsyncScheduler
from sim.core.request import Request, RequestStatus
from sim.core.scheduler import Scheduler
from sim.core.scheduler_config import SchedulerConfig
from sim.core.scheduler_output import SchedulerOutput


class World:
    """An engine with an admission, and an account of what became of every request.

    Attributes:
        ended: request → length, stop, abort or rejected.
        reasons: why a request was rejected.
        log: what each turn decided, for comparisons.
    """

    def __init__(self, settings: SchedulerConfig, *, asynchronous: bool = False, stop_after=None, **more) -> None:
        self.config = replace(settings, async_scheduling=asynchronous, **more)
        self.scheduler = (AsyncScheduler if asynchronous else Scheduler)(self.config, enable_kv_cache_events=True)
        self.admission = Admission(self.config)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.requests: dict[str, Request] = {}
        self.ended: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.log: list[tuple] = []
        self.hit_tokens = self.query_tokens = 0
        self._stop_after = stop_after or {}  # request → answers after which the model stops by itself
        self._in_flight: deque[SchedulerOutput] = deque()
        self._cached: Counter[bytes] = Counter()

    def arrive(self, request: Request) -> None:
        assert request.request_id not in self.requests
        self.requests[request.request_id] = request
        reason = self.admission.why_never(request)
        if reason is None:
            self.scheduler.add_request(request)
        else:
            self._reject(request, reason)

    def abort(self, name: str) -> None:
        for request in self.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED):
            self._end(request, "abort")
        self.check()

    def turn(self) -> None:
        """One turn of the loop."""
        goes_on = False
        if self.scheduler.has_requests():
            output = self._schedule()
            goes_on = bool(output.scheduled) or self.scheduler.has_requests()
        if self._in_flight and not (self.config.async_scheduling and len(self._in_flight) < 2 and goes_on):
            self._apply()

    def run(self, limit: int = 400) -> None:
        """Turns until nobody is left; every request must have ended then."""
        for _ in range(limit):
            if not self.busy:
                break
            self.turn()
        assert not self.busy, f"no end after {limit} turns: {list(self.scheduler.requests.values())}"
        assert set(self.ended) == set(self.requests)
        self.check_at_rest()

    @property
    def busy(self) -> bool:
        return self.scheduler.has_requests() or bool(self._in_flight)

    # one turn

    def _schedule(self) -> SchedulerOutput:
        alone = not any(batch.scheduled for batch in self._in_flight)
        before = {name: self._counters(request) for name, request in self.scheduler.requests.items()}
        output = self.scheduler.schedule()
        for request, reason in self.admission.stuck(self.scheduler, output, others_in_flight=not alone):
            # (who was preempted may know more tokens than fit one step, where chunks are off)
            first_life = request.num_preemptions == 0
            if first_life and len(before) == 1 and all(group.kind == "full" for group in self.config.groups):
                assert not ends_alone(self.config, request), f"{request} was rejected ({reason}) and can end"
            self.scheduler.finish_requests([request.request_id], RequestStatus.FINISHED_ABORTED)
            self._reject(request, reason)
        self._in_flight.append(output)
        self.check()
        self._check_output(output, before, alone)
        return output

    def _apply(self) -> None:
        output = self._in_flight.popleft()
        stopped = {
            entry.request.request_id
            for entry in output.scheduled.values()
            if entry.samples
            and entry.request.num_output_tokens + 1 == self._stop_after.get(entry.request.request_id)
            and not entry.request.status.is_finished
        }
        known = {entry.request: entry.request.num_output_tokens for entry in output.scheduled.values()}
        ended = self.scheduler.update_from_output(output, stopped)
        for request, outputs in known.items():
            assert request.num_output_tokens - outputs in (0, 1)
            assert request.num_output_tokens <= request.max_tokens
            assert request.num_tokens <= max(self.config.max_model_len, request.num_prompt_tokens + 1)
        for request in ended:
            self._end(request, request.status.value)
            right = self._stop_after.get(request.request_id, request.max_tokens)
            right = min(right, request.max_tokens, max(self.config.max_model_len - request.num_prompt_tokens, 1))
            assert request.num_output_tokens == right, f"{request} answered {request.num_output_tokens}, not {right}"
        self.log.append(("ended", [request.request_id for request in ended], self._free()))
        self.check()

    @staticmethod
    def _counters(request: Request) -> tuple[int, int]:
        return request.num_computed_tokens, request.num_tokens

    def _end(self, request: Request, how: str) -> None:
        name = request.request_id
        assert name not in self.ended, f"law 5: {name} ended as {self.ended[name]} and then as {how}"
        self.ended[name] = how

    def _reject(self, request: Request, reason: str) -> None:
        self._end(request, "rejected")
        self.reasons[request.request_id] = reason

    def _free(self) -> list[int]:
        return [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]

    # laws

    def check(self) -> None:
        """What holds at any time between two calls."""
        self.scheduler.check()
        assert len(self._in_flight) <= 2
        manager = self.scheduler.kv_cache_manager
        if not self.config.enable_prefix_caching:
            assert len(self.pool.cached_block_hash_to_block) == 0
        for request in self.scheduler.running:
            # law 2: whoever runs holds slots for all its computed tokens, as far as a window sees them
            for group in manager.coordinator.managers:
                table = group.req_to_blocks.get(request.request_id, [])
                assert len(table) >= group.blocks_for(request.num_computed_tokens), request
                window = getattr(group, "window", None)
                processed = request.num_computed_tokens - request.num_inflight_tokens
                first = max(processed - window + 1, 0) if window else 0
                for index in range(first // group.block_size, group.blocks_for(request.num_computed_tokens)):
                    assert not table[index].is_null, f"{request} lacks block {index} in group {group.group_id}"
        for request in self.scheduler.waiting:
            for group in manager.coordinator.managers:
                assert not group.req_to_blocks.get(request.request_id), f"{request} waits and holds blocks"
        self._check_events()

    def _check_events(self) -> None:
        """Law 3, seen from outside: a consumer of the events knows exactly the keys that are cached."""
        for event in self.scheduler.kv_cache_manager.take_events():
            change = 1 if type(event).__name__ == "BlockStored" else -1
            for value in event.block_hashes:
                self._cached[value + event.group_id.to_bytes(4, "big")] += change
        cached = {key: len(blocks) for key, blocks in self.pool.cached_block_hash_to_block.items()}
        assert {key: count for key, count in self._cached.items() if count} == cached

    def _check_output(self, output: SchedulerOutput, before: dict[str, tuple[int, int]], alone: bool) -> None:
        """What holds of every decision."""
        config = self.config
        assert output.total_num_scheduled_tokens <= config.max_num_batched_tokens
        encoded = sum(
            entry.request.mm_positions[item].length
            for entry in output.scheduled.values()
            for item in entry.encoder_inputs
        )
        assert encoded <= config.encoder_compute_budget
        preempted = {request.request_id for request in output.preempted}
        assert not preempted & set(output.scheduled)
        stats = output.prefix_cache_stats
        admitted = [entry for entry in output.scheduled.values() if entry.starts]
        assert not (admitted and output.preempted), "nobody is admitted in a step that preempts"
        threshold = config.long_prefill_token_threshold
        for entry in output.scheduled.values():
            computed, known = before[entry.request.request_id]
            assert entry.num_tokens > 0
            assert entry.num_computed + entry.num_tokens <= max(known, entry.request.num_tokens) + 2
            if 0 < threshold < entry.num_tokens:
                # only one beside whom nobody runs or waits, but for those that were passed over
                assert all(other is entry.request for other in self.scheduler.running)
                passed_over = config.max_loras is not None or any(other.mm_hashes for other in self.scheduler.waiting)
                assert len(before) == 1 or passed_over
            if not entry.starts:
                assert entry.num_computed == computed, "a running request goes on where it was"
            else:
                # law 9: at least one token is always computed
                assert entry.num_computed <= known - 1
                assert entry.num_computed % self.scheduler.kv_cache_manager.coordinator.scheduler_block_size == 0
            if not config.enable_chunked_prefill and entry.starts and not threshold:
                assert entry.num_tokens == known - entry.num_computed or entry.request.mm_hashes
        hits = sum(entry.num_computed for entry in admitted)
        queries = sum(before[entry.request.request_id][1] for entry in admitted)
        if config.enable_prefix_caching:
            assert stats.hits + stats.preempted_hits == hits
            assert stats.queries + stats.preempted_queries == queries
        else:
            assert (hits, stats.requests, stats.preempted_requests) == (0, 0, 0)
        self.hit_tokens += stats.hits
        self.query_tokens += stats.queries
        if config.max_loras is not None:
            adapters = {r.lora_request.id for r in self.scheduler.running if r.lora_request is not None}
            assert len(adapters) <= config.max_loras
        if alone and before and not output.scheduled and not output.preempted:
            # law 8: with nothing in flight, an engine that has requests does something or rejects one
            assert self.reasons.keys() & before.keys(), "idle while something could run"
        self.log.append(
            (
                [(name, entry.num_tokens, entry.num_computed) for name, entry in output.scheduled.items()],
                [entry.new_block_ids for entry in output.scheduled.values()],
                sorted(preempted),
                self._free(),
            )
        )

    def check_at_rest(self) -> None:
        """What holds when every request has ended: nothing is held, all is accounted for."""
        assert len(self._free()) == self.config.num_gpu_blocks - 1
        assert not any(holders for holders in self.scheduler.encoder_cache.holders.values())
        assert not self.scheduler.running
        assert not len(self.scheduler.waiting)
        for manager in self.scheduler.kv_cache_manager.coordinator.managers:
            assert not manager.req_to_blocks
            assert not manager.num_cached_block
            assert not getattr(manager, "junctions", None), "junctions of requests that have ended"
        for request in self.requests.values():
            if request.status.is_finished and self.ended[request.request_id] in ("length", "stop"):
                assert request.num_inflight_tokens == 0
                assert request.num_stale_tokens == 0
                assert request.num_cached_tokens >= 0


def ends_alone(settings: SchedulerConfig, request: Request) -> bool:
    """Whether a request comes to an end in an engine that has never seen another."""
    alone = Request(
        request.request_id,
        request.num_prompt_tokens,
        request.max_tokens,
        block_hasher=request._block_hasher,
        token_reader=request.token_ids,
        lora_request=request.lora_request,
        cache_salt=request.cache_salt,
        mm_hashes=request.mm_hashes,
        mm_positions=request.mm_positions,
    )
    scheduler = Scheduler(replace(settings, async_scheduling=False))
    scheduler.add_request(alone)
    for _ in range(3 * (request.num_prompt_tokens + request.max_tokens)):
        if not scheduler.has_requests():
            return True
        scheduler.update_from_output(scheduler.schedule())
    return False
