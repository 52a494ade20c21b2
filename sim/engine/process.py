"""The engine's SimPy process: take what has arrived, take a step, wait for as long as it takes, tell who has ended."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

from sim.engine.clock import At, Clock
from sim.engine.interface import Decider, Ended
from sim.errors import InvariantError
from workloads.spec import RequestSpec


class EngineProcess:
    """Runs a `Decider` on a clock; sleeps when there is nothing to do.

    What happens at the instant at which a step begins comes before it: an arrival at that time is
    seen by the step, an abort at that time takes effect.

    Args:
        env: the clock.
        decider: takes the decisions.
        on_ended: called with each request that has ended, at the time at which it did.

    Attributes:
        stuck: requests are alive, but none can ever be scheduled unless something comes from outside.
    """

    def __init__(self, env: Clock, decider: Decider, on_ended: Callable[[Ended], None]) -> None:
        self.env = env
        self._decider = decider
        self._on_ended = on_ended
        self._aborts: list[int] = []
        self._wake: simpy.Event | None = None
        self.stuck = False
        self.process = env.process(self._run())

    def submit(self, index: int, spec: RequestSpec) -> None:
        """A request arrives now."""
        self._decider.add_request(index, spec, self.env.now)
        self._wake_up()

    def watch(self, index: int) -> None:
        """Something waits for the end of this living request."""
        self._decider.watch(index)

    def abort(self, index: int) -> None:
        """The client of a living request gives up now; it takes effect before the next step."""
        self._aborts.append(index)
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def _run(self) -> Generator[simpy.Event, Any, None]:
        env, decider = self.env, self._decider
        while True:
            while env.peek() <= env.now:
                yield At(env, env.now, late=True)
            if self._aborts:
                self._apply_aborts()
                continue
            end_s = decider.advance(env.now, env.peek()) if decider.busy else None
            if end_s is None:
                self.stuck = decider.busy
                self._wake = env.event()
                yield self._wake
                self._wake, self.stuck = None, False
                continue
            if end_s < env.now:
                raise InvariantError(f"time goes back: a step that began at {env.now} s or later ends at {end_s} s")
            yield At(env, end_s, late=True)
            self._tell(decider.take_ended())

    def _apply_aborts(self) -> None:
        aborts, self._aborts = self._aborts, []
        ended = [self._decider.abort(index, self.env.now) for index in aborts]
        self._tell([end for end in ended if end is not None])

    def _tell(self, ended: list[Ended]) -> None:
        for end in ended:
            self._on_ended(end)
