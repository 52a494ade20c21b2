"""The clients: requests arrive when their time has come, follow-ups after what they follow, and patience ends.

Every request of the workload ends exactly once: `finished` or `aborted` in the engine, `rejected`
at the door, or `cancelled` because what it follows did not finish.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import simpy

from sim.engine.clock import At, Clock
from sim.engine.interface import Decider, Ended
from sim.engine.process import EngineProcess
from sim.errors import InvariantError
from sim.recording.recorder import Recorder
from workloads.errors import WorkloadError
from workloads.spec import RequestSpec

FINISHED = "finished"


class _Living(NamedTuple):
    """A request that the engine has, and when it arrived."""

    spec: RequestSpec
    arrival_s: float


class _Outcome(NamedTuple):
    """How a request ended."""

    status: str
    finish_s: float


class Clients:
    """Feeds a workload to an engine on a clock, and records every request when it has ended.

    Args:
        env: the clock.
        specs: the requests by arrival; a follow-up stands behind what it follows.  Read as time goes on.
        decider: the engine that decides.
        recorder: receives the rows of requests.
        why_never: says why a request can never be served, or None.
        on_ended: called after each end with the number of requests that have ended, and the time.

    Attributes:
        ended: requests that have ended, by status.
        late_follow_ups: follow-ups that the workload named only after their time had come; they
            arrived when they were named.
    """

    def __init__(
        self,
        env: Clock,
        specs: Iterator[RequestSpec],
        decider: Decider,
        recorder: Recorder,
        why_never: Callable[[RequestSpec], str | None],
        on_ended: Callable[[int, float], None] = lambda count, now_s: None,
    ) -> None:
        self.env = env
        self.engine = EngineProcess(env, decider, self._engine_ended)
        self.ended: Counter[str] = Counter()
        self.late_follow_ups = 0
        self._specs = specs
        self._decider = decider
        self._recorder = recorder
        self._why_never = why_never
        self._on_ended = on_ended
        self._next_index = 0
        self._living: dict[int, _Living] = {}
        self._indexes: dict[str, int] = {}  # of living requests
        self._outcomes: dict[str, _Outcome | None] = {}  # of all requests named so far, None until they end
        self._followers: dict[str, list[RequestSpec]] = {}
        self._named = 0
        self.process = env.process(self._arrive())

    def run(self) -> None:
        """Run until every request has ended.

        Raises:
            WorkloadError: a request contradicts the others, or the trace cannot be read on.
            InvariantError: a request got lost.
        """
        while True:
            try:
                self.env.run()
            except Exception as error:
                # SimPy raises a copy; the original has the file name of an OSError
                original = error.__cause__
                raise (original if type(original) is type(error) else error) from None
            if not self._living:
                break
            if not self.engine.stuck:
                raise InvariantError(f"law 5: the clock stands still with {len(self._living)} requests in the engine")
            self._reject_stuck()
        waiting = sum(len(specs) for specs in self._followers.values())
        if waiting or sum(self.ended.values()) != self._named:
            raise InvariantError(
                f"law 5: {self._named} requests came, {sum(self.ended.values())} ended, {waiting} were never released"
            )

    # Arrivals

    def _arrive(self) -> Generator[simpy.Event, Any, None]:
        for spec in self._specs:
            if spec.request_id in self._outcomes:
                raise WorkloadError(f"{_where(spec)}the request id {spec.request_id!r} stands twice")
            self._outcomes[spec.request_id] = None
            self._named += 1
            if spec.after is not None:
                self._hold(spec)
                continue
            if spec.arrival_s > self.env.now:
                yield At(self.env, spec.arrival_s)
            self._release(spec)

    def _hold(self, spec: RequestSpec) -> None:
        """Keep a follow-up until what it follows has ended."""
        after = spec.after
        assert after is not None
        if after not in self._outcomes or after == spec.request_id:
            raise WorkloadError(
                f"{_where(spec)}request {spec.request_id!r} follows {after!r}, which did not come before it"
            )
        outcome = self._outcomes[after]
        if outcome is not None:
            if outcome.status == FINISHED and max(outcome.finish_s + spec.delay_s, spec.arrival_s) < self.env.now:
                self.late_follow_ups += 1
            self._follow(spec, after, outcome)
            return
        self._followers.setdefault(after, []).append(spec)
        if after in self._indexes:
            self.engine.watch(self._indexes[after])

    def _follow(self, spec: RequestSpec, after: str, outcome: _Outcome) -> None:
        """What a follow-up waited for has ended: it will arrive, or it and all behind it are cancelled."""
        if outcome.status == FINISHED:
            release = At(self.env, max(outcome.finish_s + spec.delay_s, spec.arrival_s))
            assert release.callbacks is not None
            release.callbacks.append(lambda _: self._release(spec))
            return
        cancelled = deque([(spec, f"it follows {after}, which was {outcome.status}")])
        while cancelled:
            spec, reason = cancelled.popleft()
            self._record(spec, None, Ended(self._take_index(), "cancelled", reason, self.env.now))
            behind = self._followers.pop(spec.request_id, ())
            cancelled.extend((next_, f"it follows {spec.request_id}, which was cancelled") for next_ in behind)

    def _release(self, spec: RequestSpec) -> None:
        """A request arrives now."""
        index, now_s = self._take_index(), self.env.now
        reason = self._why_never(spec)
        if reason is not None:
            self._end(spec, now_s, Ended(index, "rejected", reason, now_s))
            return
        self._living[index] = _Living(spec, now_s)
        self._indexes[spec.request_id] = index
        self.engine.submit(index, spec)
        if spec.request_id in self._followers:
            self.engine.watch(index)
        if spec.abort_after_s is not None:
            patience = At(self.env, now_s + spec.abort_after_s)
            assert patience.callbacks is not None
            patience.callbacks.append(lambda _: self._give_up(index))

    def _give_up(self, index: int) -> None:
        if index in self._living:
            self.engine.abort(index)

    def _take_index(self) -> int:
        index, self._next_index = self._next_index, self._next_index + 1
        return index

    # Ends

    def _engine_ended(self, end: Ended) -> None:
        """The engine is done with a request."""
        living = self._living.pop(end.request_index, None)
        if living is None:
            raise InvariantError(f"law 5: request {end.request_index} ended twice or was never there")
        del self._indexes[living.spec.request_id]
        if end.status == "aborted":
            end = replace(end, reason=f"the client gave up after {living.spec.abort_after_s:g} s")
        self._end(living.spec, living.arrival_s, end)

    def _end(self, spec: RequestSpec, arrival_s: float | None, end: Ended) -> None:
        """A request has ended: record it, and release or cancel what follows it."""
        outcome = self._record(spec, arrival_s, end)
        for follower in self._followers.pop(spec.request_id, ()):
            self._follow(follower, spec.request_id, outcome)

    def _record(self, spec: RequestSpec, arrival_s: float | None, end: Ended) -> _Outcome:
        outcome = _Outcome(end.status, end.finish_s)
        self._outcomes[spec.request_id] = outcome
        self.ended[end.status] += 1
        self._recorder.row("requests", _row(spec, arrival_s, end))
        self._on_ended(sum(self.ended.values()), self.env.now)
        return outcome

    def _reject_stuck(self) -> None:
        """Nothing more will happen, and requests are left: they can never be scheduled."""
        for index in list(self._living):
            end = self._decider.abort(index, self.env.now)
            if end is None:
                raise InvariantError(f"law 5: the engine has lost request {index}")
            living = self._living.pop(index)
            del self._indexes[living.spec.request_id]
            reason = "the engine can never schedule it, and nothing else is left to happen"
            self._end(living.spec, living.arrival_s, replace(end, status="rejected", reason=reason))


def _where(spec: RequestSpec) -> str:
    return f"{spec.source}: " if spec.source else ""


def _row(spec: RequestSpec, arrival_s: float | None, end: Ended) -> tuple[Any, ...]:
    """The row of the requests table, in the order of its schema."""
    return (
        end.request_index,
        spec.request_id,
        spec.category,
        spec.session,
        spec.turn,
        arrival_s,
        end.first_scheduled_s,
        end.first_token_s,
        end.finish_s,
        spec.prompt_tokens,
        end.output_tokens,
        end.cached_tokens,
        end.recomputed_tokens,
        end.preemptions,
        end.status,
        end.reason,
        spec.priority,
        spec.lora.name if spec.lora is not None else None,
        spec.cache_salt,
        len(spec.mm_items),
        end.phantom_hit_tokens,
        spec.source,
    )
