"""The scheduler: what each step computes, for whom, and who must give way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from sim.core.block import KVCacheBlock
from sim.core.block_pool import FreeQueue, PoolObserver
from sim.core.coordinator import GroupBlocks
from sim.core.encoder_cache import EncoderCacheManager
from sim.core.encoder_scheduling import EncoderPlan, plan_encoder_inputs
from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.request import Request, RequestStatus
from sim.core.request_queue import make_request_queue
from sim.core.scheduler_config import SchedulerConfig
from sim.core.scheduler_output import ScheduledRequest, SchedulerOutput
from sim.core.statistics import PrefixCacheStats
from sim.errors import InvariantError


class _Step:
    """What is being put together while a step is scheduled."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.token_budget = config.max_num_batched_tokens
        self.encoder_budget = config.encoder_compute_budget
        self.scheduled: dict[str, ScheduledRequest] = {}
        self.preempted: list[Request] = []
        self.stats = PrefixCacheStats()


class _Start(NamedTuple):
    """What a waiting request would begin with."""

    hits: GroupBlocks
    num_hit_tokens: int
    encoder: EncoderPlan


class Scheduler:
    """Continuous batching with chunked prefill, prefix caching and preemption.

    One step is `schedule`, then `update_from_output` when the batch has run.  Requests come by
    `add_request` and may leave between steps by `finish_requests`.

    Args:
        config: the settings.
        enable_kv_cache_events: collect events, see `KVCacheManager.take_events`.
        free_queue: makes the free queue: the eviction policy.
        observer: told what happens to blocks.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        enable_kv_cache_events: bool = False,
        free_queue: Callable[[list[KVCacheBlock]], FreeQueue] = FreeKVCacheBlockQueue,
        observer: PoolObserver | None = None,
    ) -> None:
        self.config = config
        self.kv_cache_manager = KVCacheManager(
            config.num_gpu_blocks,
            config.groups,
            config.max_model_len,
            enable_caching=config.enable_prefix_caching,
            enable_kv_cache_events=enable_kv_cache_events,
            retention_interval=config.retention_interval,
            max_admission_tokens=config.max_admission_tokens,
            free_queue=free_queue,
            observer=observer,
        )
        self.encoder_cache = EncoderCacheManager(config.encoder_capacity)
        self.waiting = make_request_queue(config.scheduling_policy)
        self.running: list[Request] = []
        self.requests: dict[str, Request] = {}

    # Requests come and go

    def add_request(self, request: Request) -> None:
        """A request arrives.  Raises `ValueError` when its id is among the living."""
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        self.requests[request.request_id] = request
        self.waiting.add(request)

    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> list[Request]:
        """End requests from outside (an abort); those that have ended already are left alone."""
        ended = []
        for request_id in request_ids:
            request = self.requests.get(request_id)
            if request is None:
                continue
            if request.status is RequestStatus.RUNNING:
                self.running.remove(request)
            else:
                self.waiting.remove(request)
            self._end(request, status)
            ended.append(request)
        return ended

    def has_requests(self) -> bool:
        """Whether any request is alive."""
        return bool(self.requests)

    # One step

    def schedule(self) -> SchedulerOutput:
        """Put the next batch together.  Changes all state but what only the batch's end can tell."""
        step = _Step(self.config)
        self._schedule_running(step)
        if not step.preempted:
            self._schedule_waiting(step)
        for entry in step.scheduled.values():
            entry.request.num_computed_tokens += entry.num_tokens
            self._on_scheduled(entry)
        return SchedulerOutput(step.scheduled, step.preempted, step.stats)

    def _schedule_running(self, step: _Step) -> None:
        """Go on with running requests in order; make room by preemption where needed."""
        index = 0
        while index < len(self.running) and step.token_budget > 0:
            request = self.running[index]
            num_new = 0 if self._ends_in_flight(request) else self._num_new_running(request, step)
            plan = self._plan_encoder(request, request.num_computed_tokens, num_new, step)
            if plan.num_new_tokens == 0:
                index += 1
                continue
            while True:
                new_blocks = self.kv_cache_manager.allocate_slots(request, plan.num_new_tokens)
                if new_blocks is not None:
                    break
                victim = self._choose_victim()
                if self._take_back(victim, step):
                    index -= 1
                self._preempt(victim)
                step.preempted.append(victim)
                if victim is request:
                    break
            if new_blocks is None:
                if self.config.scheduling_policy == "fcfs":
                    return
                continue
            self._enter(request, plan, request.num_computed_tokens, new_blocks, step)
            index += 1

    def _num_new_running(self, request: Request, step: _Step) -> int:
        num_new = request.num_tokens + request.num_output_placeholders - request.num_computed_tokens
        num_new = min(self._cap_long_prefill(num_new), step.token_budget)
        return max(min(num_new, self.config.max_model_len - 1 - request.num_computed_tokens), 0)

    def _cap_long_prefill(self, num_new: int) -> int:
        threshold = self.config.long_prefill_token_threshold
        if threshold > 0 and len(self.running) + len(self.waiting) > 1:
            return min(num_new, threshold)
        return num_new

    def _schedule_waiting(self, step: _Step) -> None:
        """Admit waiting requests, the first one first; the first that does not fit blocks the rest."""
        skipped: list[Request] = []
        loras = {r.lora_request.id for r in self.running if r.lora_request is not None}
        while self.waiting and step.token_budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting.peek()
            lora = request.lora_request.id if request.lora_request is not None else None
            too_many = (
                self.config.max_loras is not None
                and lora is not None
                and lora not in loras
                and len(loras) >= self.config.max_loras
            )
            if too_many or self._must_wait(request):
                skipped.append(self.waiting.pop())
                continue
            plan = self._plan_start(request, step)
            if plan is None:
                break
            if plan.encoder.num_new_tokens == 0:
                skipped.append(self.waiting.pop())
                continue
            if not self._admit(request, plan, step):
                break
            if lora is not None:
                loras.add(lora)
        self.waiting.prepend_all(skipped)

    def _plan_start(self, request: Request, step: _Step) -> _Start | None:
        """What the first waiting request would find and compute; None when it has to block the queue."""
        hits, num_hit_tokens = self.kv_cache_manager.get_computed_blocks(request)
        num_new = self._cap_long_prefill(request.num_tokens - num_hit_tokens)
        if not self.config.enable_chunked_prefill and num_new > step.token_budget:
            return None
        encoder = self._plan_encoder(request, num_hit_tokens, min(num_new, step.token_budget), step)
        return _Start(hits, num_hit_tokens, encoder)

    def _admit(self, request: Request, start: _Start, step: _Step) -> bool:
        """Start or resume the first waiting request, if its blocks fit."""
        hits, num_hit_tokens, plan = start
        new_blocks = self.kv_cache_manager.allocate_slots(
            request,
            plan.num_new_tokens,
            num_hit_tokens,
            hits,
            full_sequence_must_fit=self.config.scheduler_reserve_full_isl,
            watermark_blocks=self.config.watermark_blocks if self.running else 0,
        )
        if new_blocks is None:
            self.encoder_cache.free(request)
            return False
        self.waiting.pop()
        self.running.append(request)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_hit_tokens
        if self.config.enable_prefix_caching:
            step.stats.record(request.num_tokens, num_hit_tokens, request.num_preemptions > 0)
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = num_hit_tokens
        request.num_phantom_hit_tokens += self._phantom_tokens(hits)
        table = self.kv_cache_manager.coordinator.get_blocks(request.request_id)
        self._enter(request, plan, num_hit_tokens, table, step, starts=True)
        return True

    def _phantom_tokens(self, hits: GroupBlocks) -> int:
        """Hit tokens whose KV was never computed: the most that any group shows."""
        managers = self.kv_cache_manager.coordinator.managers
        return max(
            sum(manager.block_size for block in blocks if block.is_phantom)
            for manager, blocks in zip(managers, hits, strict=True)
        )

    def _plan_encoder(self, request: Request, num_computed: int, num_new: int, step: _Step) -> EncoderPlan:
        if num_new == 0 or not request.mm_hashes:
            return EncoderPlan([], [], num_new, step.encoder_budget)
        return plan_encoder_inputs(
            self.encoder_cache,
            request,
            num_computed,
            num_new,
            step.encoder_budget,
            self.config.disable_chunked_mm_input,
        )

    def _enter(
        self,
        request: Request,
        plan: EncoderPlan,
        num_computed: int,
        blocks: GroupBlocks,
        step: _Step,
        *,
        starts: bool = False,
    ) -> None:
        """Put a request that has its blocks into the batch."""
        ids = tuple([block.block_id for block in group] for group in blocks)
        step.scheduled[request.request_id] = ScheduledRequest(
            request, plan.num_new_tokens, num_computed, ids, plan.inputs, starts=starts
        )
        step.token_budget -= plan.num_new_tokens
        step.encoder_budget = plan.budget
        for item in plan.inputs:
            self.encoder_cache.allocate(request, item)
        for item in plan.repeats:
            self.encoder_cache.check_and_update_cache(request, item)

    # Giving way

    def _choose_victim(self) -> Request:
        """FCFS: the last running request; priority: the largest (priority, arrival), the first among equals."""
        if self.config.scheduling_policy == "fcfs":
            return self.running[-1]
        return max(self.running, key=lambda request: (request.priority, request.arrival_time))

    def _take_back(self, victim: Request, step: _Step) -> bool:
        """Undo a victim's part of the batch; says whether it had one."""
        entry = step.scheduled.pop(victim.request_id, None)
        if entry is None:
            return False
        step.token_budget += entry.num_tokens
        step.encoder_budget += sum(victim.mm_positions[item].length for item in entry.encoder_inputs)
        # The reference leaves the keys of this chunk in place: later requests may hit what never ran.
        self.kv_cache_manager.mark_phantom(victim, entry.num_computed, entry.num_computed + entry.num_tokens)
        return True

    def _preempt(self, request: Request) -> None:
        """Take a running request's blocks; it will start over with what it knows."""
        self.running.remove(request)
        self.kv_cache_manager.free(request)
        self.encoder_cache.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self._on_preempted(request)
        self.waiting.prepend(request)

    # The end of a step

    def update_from_output(self, output: SchedulerOutput, stopped: Collection[str] = ()) -> list[Request]:
        """The batch has run: append what it sampled and end what is done.

        Args:
            output: the batch.
            stopped: ids whose sampled token ends the answer before `max_tokens`.

        Returns:
            The requests that ended, in scheduling order.
        """
        ended = []
        for entry in output.scheduled.values():
            request = entry.request
            if request.status.is_finished:
                continue
            self._free_encoder_inputs(request, request.num_computed_tokens)
            if entry.samples:
                request.append_output_token()
                if self._stop(request, stopped):
                    ended.append(request)
        return ended

    def _free_encoder_inputs(self, request: Request, num_computed_tokens: int) -> None:
        """Release items that lie wholly in what is computed."""
        for index in self.encoder_cache.get_cached_input_ids(request):
            item = request.mm_positions[index]
            if item.offset + item.length <= num_computed_tokens:
                self.encoder_cache.free_encoder_input(request, index)

    def _stop(self, request: Request, stopped: Collection[str]) -> bool:
        """End the request if its newest token was its last."""
        if request.request_id in stopped:
            status = RequestStatus.FINISHED_STOPPED
        elif request.num_tokens >= self.config.max_model_len or request.num_output_tokens >= request.max_tokens:
            status = RequestStatus.FINISHED_LENGTH_CAPPED
        else:
            return False
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._end(request, status)
        return True

    def _end(self, request: Request, status: RequestStatus) -> None:
        request.status = status
        self.encoder_cache.free(request)
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]

    # What asynchronous scheduling does differently

    def _on_scheduled(self, entry: ScheduledRequest) -> None:
        """A request's part of a batch is final."""
        entry.samples = entry.request.num_computed_tokens >= entry.request.num_tokens

    def _on_preempted(self, request: Request) -> None:
        """A request has lost its blocks."""

    def _ends_in_flight(self, request: Request) -> bool:
        """Whether the batches in flight already bring the request to its end."""
        return False

    def _must_wait(self, request: Request) -> bool:
        """Whether a waiting request has to be skipped for now."""
        return False

    def check(self) -> None:
        """Raise `InvariantError` unless every part agrees with every other (laws 1 to 5, 12, 14 and 15)."""
        self.kv_cache_manager.check()
        self.encoder_cache.check()
        waiting = list(self.waiting)
        if len(waiting) + len(self.running) != len(self.requests):
            raise InvariantError(
                f"law 5: {len(self.running)} running + {len(waiting)} waiting != {len(self.requests)} alive"
            )
        if len(self.running) > self.config.max_num_seqs:
            raise InvariantError(f"law 14: {len(self.running)} run, max_num_seqs is {self.config.max_num_seqs}")
        for request in self.running:
            if request.status is not RequestStatus.RUNNING:
                raise InvariantError(f"law 15: {request} is among the running")
            if not 0 < request.num_computed_tokens <= request.num_tokens + request.num_output_placeholders:
                raise InvariantError(f"law 15: {request} runs with {request.num_output_placeholders} placeholders")
            if request.num_output_placeholders < 0 or request.num_stale_tokens:
                raise InvariantError(
                    f"law 15: {request} runs with {request.num_output_placeholders} placeholders, "
                    f"{request.num_stale_tokens} stale tokens"
                )
        for request in waiting:
            if request.status not in (RequestStatus.WAITING, RequestStatus.PREEMPTED) or request.num_computed_tokens:
                raise InvariantError(f"law 15: {request} is among the waiting")
        running = {request.request_id for request in self.running}
        for identifier, holders in self.encoder_cache.holders.items():
            if idle := sorted({request_id for request_id, _ in holders} - running):
                raise InvariantError(f"law 12: {idle} hold item {identifier!r} and do not run")
        for blocks in (manager.req_to_blocks for manager in self.kv_cache_manager.coordinator.managers):
            ended = [request_id for request_id, table in blocks.items() if table and request_id not in self.requests]
            if ended:
                raise InvariantError(f"law 2: request {ended[0]} has ended and holds blocks")
