"""The readable engine: `sim.core.scheduler`, one step after another, with its rows recorded."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple, cast

from sim.core.admission import Admission
from sim.core.async_scheduler import AsyncScheduler
from sim.core.block import BlockHash
from sim.core.block_pool import PoolObserver
from sim.core.cache_groups import hash_block_size
from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.core.request import Request, RequestStatus
from sim.core.scheduler import Scheduler
from sim.core.scheduler_config import SchedulerConfig
from sim.core.scheduler_output import SchedulerOutput
from sim.core.spec_request import SpecHashes, request_from_spec
from sim.engine.hashes import FingerprintHashes
from sim.engine.interface import Ended
from sim.engine.observers import Observers
from sim.engine.policy import PolicyMaker
from sim.engine.requests import max_tokens_of
from sim.eviction.facts import Origin
from sim.eviction.registry import Eviction
from sim.recording.kv_events import KVEventWriter
from sim.recording.miss_observer import MissObserver
from sim.recording.miss_tracker import MissTracker
from sim.recording.recorder import Recorder
from sim.recording.residency import BlockResidency
from sim.timing.base import Batch, StepTime
from workloads.fingerprint import Fingerprints, sequence_fingerprints
from workloads.spec import RequestSpec


class _Followed:
    """A living request with what recorders want to know of it."""

    __slots__ = (
        "answer_tokens",
        "computed",
        "done",
        "first_scheduled_s",
        "first_token_s",
        "last_step",
        "last_token_s",
        "recomputed",
        "request",
    )

    def __init__(self, request: Request, answer_tokens: int) -> None:
        self.request = request
        self.answer_tokens = answer_tokens
        self.computed = 0  # tokens that it has computed in this life
        self.done = 0  # the most that it had computed in an earlier life
        self.recomputed = 0
        self.first_scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s = 0.0
        self.last_step = -1  # the step whose end brought its last token


class _InFlight(NamedTuple):
    """A batch that has been scheduled and not applied, and the row of its step so far."""

    output: SchedulerOutput
    step: int
    start_s: float
    end_s: float
    row: tuple[float | int, ...]


class ReferenceEngine:
    """A `sim.engine.interface.Decider` over the reference's rules, synchronous or asynchronous.

    Args:
        config: the engine's settings.
        step_time: how long a batch takes.
        recorder: receives rows of steps, stalls and evictions.
        check_invariants: check all laws after every step (slow).
        make_policy: makes the eviction policy; None = the pool's own queue.
        hashes: makes real block hashes; None = content fingerprints, which decide the same.
        events: receives KV events (best with real hashes).
        fingerprints: the content fingerprints of a request, made or known before.
        misses: explains misses.
    """

    name = "reference"

    def __init__(
        self,
        config: SchedulerConfig,
        step_time: StepTime,
        recorder: Recorder,
        *,
        check_invariants: bool = False,
        make_policy: PolicyMaker | None = None,
        hashes: SpecHashes | None = None,
        events: KVEventWriter | None = None,
        fingerprints: Fingerprints = sequence_fingerprints,
        misses: MissTracker | None = None,
    ) -> None:
        self.config = config
        self._step_time = step_time
        self._recorder = recorder
        self._check = check_invariants
        self._observer = BlockResidency(config.num_gpu_blocks, [g.block_size for g in config.groups], recorder)
        self._hashes = hashes
        self._fingerprints = fingerprints
        self._events = events
        self._origins: dict[int, Origin] | None = None
        observers: list[PoolObserver] = [self._observer]
        eviction = Eviction(FreeKVCacheBlockQueue, None)
        if make_policy is not None:
            origins = self._origins = {}
            eviction = make_policy(lambda: self._observer.now_s, lambda request: origins[request.index])
            if eviction.observer is not None:
                observers.append(eviction.observer)
        self._misses: MissObserver | None = None
        if misses is not None:
            self._misses = MissObserver(
                misses,
                config.groups,
                lambda: (self._observer.step, self._observer.now_s),
                fingerprints,
                caching=config.enable_prefix_caching,
            )
            observers.append(self._misses)
        observer = observers[0] if len(observers) == 1 else Observers(observers)
        scheduler = AsyncScheduler if config.async_scheduling else Scheduler
        self.scheduler = scheduler(
            config, enable_kv_cache_events=events is not None, free_queue=eviction.free_queue, observer=observer
        )
        self._pool = self.scheduler.kv_cache_manager.block_pool
        self._hash_block_size = hash_block_size(config.groups)
        self._alive: dict[str, _Followed] = {}
        self._ids: dict[int, str] = {}
        self._admission = Admission(config)
        self._in_flight: deque[_InFlight] = deque()
        self._most_in_flight = 2 if config.async_scheduling else 1
        self._ended: list[Ended] = []
        self._steps = 0
        self._free_at_s = 0.0  # when the batch that was scheduled last ends

    @property
    def busy(self) -> bool:
        """Whether a request is alive or a batch in flight that computes something."""
        return bool(self._alive) or any(batch.output.scheduled for batch in self._in_flight)

    def add_request(self, index: int, spec: RequestSpec, now_s: float) -> None:
        """A request arrives.  Raises `ValueError` when its id is among the living."""
        answer = min(spec.output_tokens, max_tokens_of(spec))
        request = request_from_spec(spec, self._hashes, index=index, arrival_time=now_s)
        if self._hashes is None:
            hashes = FingerprintHashes(request, spec, self._hash_block_size, self._fingerprints)
            request.block_hashes = cast("list[BlockHash]", hashes)  # only ever read by index
        if self._origins is not None:
            self._origins[index] = Origin(spec.category, spec.session, spec.turn)
        if self._misses is not None:
            self._misses.arrived(index, spec)
        self.scheduler.add_request(request)
        self._alive[spec.request_id] = _Followed(request, answer)
        self._ids[index] = spec.request_id

    def watch(self, index: int) -> None:
        """Nothing to do: this engine takes one step at a time."""

    def abort(self, index: int, now_s: float) -> Ended | None:
        """End a request between two steps; None if it has ended already."""
        request_id = self._ids.get(index)
        if request_id is None:
            return None
        self._observer.now_s = now_s
        self.scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)
        return self._end(request_id, "aborted", now_s)

    def advance(self, now_s: float, until_s: float) -> float | None:
        """Take one step (or turn), whatever `until_s` is; see `Decider`."""
        in_flight = self._in_flight
        if self._free_at_s < now_s and not any(batch.output.scheduled for batch in in_flight):
            in_flight.clear()  # the engine slept, and what was left had no work
        while self._alive and len(in_flight) < self._most_in_flight:
            batch = self._schedule(now_s)
            results_to_come = any(other.output.scheduled for other in in_flight)  # an empty batch brings none
            rejected = self._admission.stuck(self.scheduler, batch.output, others_in_flight=results_to_come)
            for request, reason in rejected:
                self._reject(request, reason, now_s)
            if self._check:
                self.check()
            if batch.output.scheduled or batch.output.preempted or in_flight:
                in_flight.append(batch)
                continue
            # nothing has changed, so it was no step
            self._steps -= 1
            if not rejected:
                return None
        if not in_flight:
            return now_s
        oldest = in_flight.popleft()
        self._apply(oldest)
        if self._check:
            self.check()
        return oldest.end_s

    def take_ended(self) -> list[Ended]:
        """The requests that ended since the last call, in order."""
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Nothing is held back."""

    def check(self) -> None:
        """Raise `InvariantError` unless the scheduler's state agrees with itself."""
        self.scheduler.check()

    def _schedule(self, now_s: float) -> _InFlight:
        observer, scheduler = self._observer, self.scheduler
        observer.now_s = now_s
        observer.step = step = self._steps
        self._steps += 1
        evicted = self._pool.num_evicted_keys
        output = scheduler.schedule()
        self._write_events(now_s)
        for request in output.preempted:
            followed = self._alive[request.request_id]
            followed.done = max(followed.done, followed.computed)
            followed.computed = 0
            if self._misses is not None:
                self._misses.tracker.preempted(request.index, followed.done)
        start_s = max(now_s, self._free_at_s)
        chunks: list[tuple[int, int]] = []
        contexts: list[int] = []
        encoder_tokens = 0
        for entry in output.scheduled.values():
            request, before, tokens = entry.request, entry.num_computed, entry.num_tokens
            followed = self._alive[request.request_id]
            if followed.first_scheduled_s is None:
                followed.first_scheduled_s = now_s
            followed.recomputed += max(min(before + tokens, followed.done) - before, 0)
            followed.computed = before + tokens
            if tokens == 1 and before >= request.num_prompt_tokens:
                contexts.append(before)
            else:
                chunks.append((tokens, before))
            for item in entry.encoder_inputs:
                encoder_tokens += request.mm_positions[item].length
        batch = Batch.of(chunks, contexts, encoder_tokens)
        # an empty batch (everything was preempted) is never sent to the GPU
        end_s = start_s + (self._step_time.seconds(batch) if output.scheduled else 0.0)
        self._free_at_s = end_s
        stats = output.prefix_cache_stats
        row = (
            len(scheduler.running),
            len(scheduler.waiting),
            batch.prefill_requests,
            batch.prefill_tokens,
            batch.decode_requests,
            batch.context_tokens,
            batch.encoder_tokens,
            self._pool.get_num_free_blocks(),
            self._pool.get_usage(),
            len(output.preempted),
            stats.queries,
            stats.hits,
            stats.preempted_queries,
            stats.preempted_hits,
            self._pool.num_evicted_keys - evicted,
        )
        return _InFlight(output, step, start_s, end_s, row)

    def _apply(self, batch: _InFlight) -> None:
        output, end_s, step = batch.output, batch.end_s, batch.step
        self._observer.now_s = end_s
        sampling = [entry.request for entry in output.scheduled.values() if entry.samples]
        stopped = set()
        sampled: list[_Followed] = []
        for request in sampling:
            followed = self._alive.get(request.request_id)
            if followed is None or followed.request is not request:
                continue  # it has ended in the meantime
            sampled.append(followed)
            answered, known = request.num_output_tokens + 1, request.num_tokens + 1
            capped = answered >= request.max_tokens or known >= self.config.max_model_len
            if answered >= followed.answer_tokens and not capped:
                stopped.add(request.request_id)
        for followed in sampled:
            if followed.first_token_s is None:
                followed.first_token_s = end_s
            elif followed.last_step != step - 1:
                self._recorder.row("stalls", (step, followed.request.index, end_s - followed.last_token_s))
            followed.last_step, followed.last_token_s = step, end_s
        ended = self.scheduler.update_from_output(output, stopped)
        self._write_events(end_s)
        for request in ended:
            self._ended.append(self._end(request.request_id, "finished", end_s))
        row = batch.row
        self._recorder.row("steps", (step, batch.start_s, end_s - batch.start_s, *row[:10], len(ended), *row[10:]))

    def _write_events(self, time_s: float) -> None:
        if self._events is not None:
            self._events.write(time_s, self.scheduler.kv_cache_manager.take_events())

    def _reject(self, request: Request, reason: str, now_s: float) -> None:
        """End a request of which it has become certain that it never would end."""
        self.scheduler.finish_requests([request.request_id], RequestStatus.FINISHED_ABORTED)
        self._ended.append(replace(self._end(request.request_id, "rejected", now_s), reason=reason))

    def _end(self, request_id: str, status: str, finish_s: float) -> Ended:
        followed = self._alive.pop(request_id)
        request = followed.request
        del self._ids[request.index]
        if self._misses is not None:
            self._misses.ended(request.index)
        if self._origins is not None:
            del self._origins[request.index]
        reason = None
        if status == "finished":
            reason = "length" if request.status is RequestStatus.FINISHED_LENGTH_CAPPED else "stop"
        return Ended(
            request_index=request.index,
            status=status,
            reason=reason,
            finish_s=finish_s,
            first_scheduled_s=followed.first_scheduled_s,
            first_token_s=followed.first_token_s,
            output_tokens=request.num_output_tokens,
            cached_tokens=max(request.num_cached_tokens, 0),
            recomputed_tokens=followed.recomputed,
            preemptions=request.num_preemptions,
            phantom_hit_tokens=request.num_phantom_hit_tokens,
        )
