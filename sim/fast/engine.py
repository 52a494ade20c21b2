"""The fast engine as a run uses it: requests in, time forward, ended requests and rows out."""

from __future__ import annotations

from typing import NamedTuple

from sim.core.scheduler_config import SchedulerConfig
from sim.errors import InvariantError
from sim.fast.async_drive import AsyncDrive
from sim.fast.eviction_rows import Sink, eviction_rows
from sim.fast.keys import U64Array
from sim.fast.load import StepSeconds
from sim.fast.request import ABORTED, REJECTED, FastRequest
from sim.fast.scheduler import FastScheduler
from sim.fast.support import supports
from sim.fast.sync_drive import SyncDrive
from sim.fast.watch import Watch
from workloads.fingerprint import Fingerprints, sequence_fingerprints
from workloads.spec import RequestSpec


class FastEnded(NamedTuple):
    """A request that has ended; the fields of `sim.engine.interface.Ended`."""

    request_index: int
    status: str
    reason: str | None
    finish_s: float
    first_scheduled_s: float | None
    first_token_s: float | None
    output_tokens: int
    cached_tokens: int
    recomputed_tokens: int
    preemptions: int
    phantom_hit_tokens: int


class FastEngine:
    """Decides exactly as `sim.core` does, for the engines that `supports` covers.

    Args:
        config: the engine's settings.
        step_time: how long a batch takes.
        sink: receives rows of steps, stalls and evictions.
        check_invariants: check all state after every call of `advance` (slow).
        fingerprints: the content fingerprints of a request, made or known before.
        misses: explains misses.

    Raises:
        ValueError: the fast path does not cover this engine.
    """

    name = "fast"

    def __init__(
        self,
        config: SchedulerConfig,
        step_time: StepSeconds,
        sink: Sink,
        *,
        check_invariants: bool = False,
        fingerprints: Fingerprints = sequence_fingerprints,
        misses: Watch | None = None,
    ) -> None:
        why_not = supports(config)
        if why_not is not None:
            raise ValueError(f"the fast path does not cover this engine: {why_not}")
        self.config = config
        self._check = check_invariants
        self._fingerprints = fingerprints
        self._block_size = config.groups[0].block_size
        self.scheduler = FastScheduler(config, watch=misses)
        pool = self.scheduler.pool
        self._flush_rows = eviction_rows(sink, pool) if sink.wants("evictions") else None
        self._misses = misses
        if misses is not None:
            misses.attach(self.scheduler.keys, lambda: (pool.step, pool.scheduled_s))
        drive = AsyncDrive if config.async_scheduling else SyncDrive
        self.drive = drive(config, self.scheduler, step_time, sink)
        self._alive: dict[int, FastRequest] = {}
        self._stop_at_end = False

    @property
    def busy(self) -> bool:
        """Whether a request is alive or a batch in flight."""
        return bool(self._alive) or self.drive.in_flight > 0

    def add_request(self, index: int, spec: RequestSpec, now_s: float) -> None:
        """A request arrives; `index` is new and larger than any before."""
        max_tokens = spec.output_tokens if spec.max_tokens is None else spec.max_tokens
        answer = min(spec.output_tokens, max_tokens)
        request = FastRequest(
            index,
            spec.request_id,
            prompt_tokens=spec.prompt_tokens,
            answer_tokens=answer,
            max_tokens=max_tokens,
            block_size=self._block_size,
            max_model_len=self.config.max_model_len,
            arrival_s=now_s,
            priority=spec.priority,
            lora=spec.lora,
            items=spec.mm_items,
        )
        if spec.session is not None or spec.after is not None:
            self._stop_at_end = True
        if self._misses is not None:
            self._misses.arrived(index, spec)
        self.admit(request, self._fingerprints(spec, self._block_size))
        if self._misses is not None and self._misses.needs_all_keys:
            for living in self._alive.values():
                self.scheduler.keys.mark(living)

    def admit(self, request: FastRequest, fingerprints: U64Array) -> None:
        """A request arrives with the fingerprints of its full blocks, prompt and answer."""
        self.scheduler.add(request, fingerprints)
        self._alive[request.index] = request

    def watch(self, index: int) -> None:
        """Something waits for the end of this living request: `advance` stops where a request ends, from now on."""
        self._stop_at_end = True

    def abort(self, index: int, now_s: float) -> FastEnded | None:
        """The client of a request gives up, between two steps; None if it has ended already."""
        request = self._alive.get(index)
        if request is None:
            return None
        self.drive.withdraw(request)
        self.scheduler.abort(request, now_s)
        return self._ended(request)

    def advance(self, now_s: float, until_s: float) -> float | None:
        """Take at least one step, the first one at `now_s`, none of the others at or after `until_s`.

        Once a request of a session has come, or `watch` was called, it also returns when a request
        has ended.

        Returns:
            The time at which the last step ends, or None if nothing was and will be scheduled before
            something changes from outside.
        """
        clock = self.drive.advance(now_s, until_s, self._stop_at_end)
        if self._check:
            self.check()
        return clock

    def take_ended(self) -> list[FastEnded]:
        """The requests that ended since the last call, in order."""
        ended, self.drive.ended = self.drive.ended, []
        if self._flush_rows is not None and (not self._alive or len(ended) == len(self._alive)):
            self._flush_rows()
        return [self._ended(request) for request in ended]

    def check(self) -> None:
        """Raise `InvariantError` unless all state agrees."""
        self.scheduler.check()
        alive = {id(request) for request in self.scheduler.requests()}
        ended = {id(request) for request in self.drive.ended}
        if alive | ended != {id(request) for request in self._alive.values()}:
            raise InvariantError("law 5: the requests in the queues are not those that are alive")

    def _ended(self, request: FastRequest) -> FastEnded:
        del self._alive[request.index]
        status, reason = "finished", None
        output = request.known - request.prompt_tokens
        if request.status == ABORTED:
            status = "aborted"
        elif request.status == REJECTED:
            status, reason = "rejected", request.reason
        elif output >= request.max_tokens or request.known >= self.config.max_model_len:
            reason = "length"
        else:
            reason = "stop"
        return FastEnded(
            request.index,
            status,
            reason,
            request.ended_s,
            None if request.first_scheduled_s < 0 else request.first_scheduled_s,
            None if request.first_token_s < 0 else request.first_token_s,
            output,
            max(request.cached_tokens, 0),
            request.recomputed,
            request.preemptions,
            request.phantom_tokens,
        )
