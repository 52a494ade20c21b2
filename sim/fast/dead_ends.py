"""Requests on which an engine would never come to an end, as `sim.core.admission` tells them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast

from sim.core.admission import Admission
from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import FastBatch
from sim.fast.request import FastRequest

if TYPE_CHECKING:
    from sim.core.scheduler import Scheduler
    from sim.core.scheduler_output import SchedulerOutput
    from sim.fast.scheduler import FastScheduler


class DeadEnd(NamedTuple):
    """A request that never ends, and why."""

    request: FastRequest
    reason: str


class DeadEnds:
    """Looks at every literal step of an engine."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._admission = Admission(config)

    def find(self, scheduler: FastScheduler, batch: FastBatch) -> list[DeadEnd]:
        """Requests of which this batch, with no other in flight, makes certain that they never end."""
        # the rules read a request by the core's names, which `FastRequest` has too
        output = SimpleNamespace(scheduled=dict(enumerate(batch.entries)), preempted=batch.preempted)
        found = self._admission.stuck(cast("Scheduler", scheduler), cast("SchedulerOutput", output))
        return [DeadEnd(cast("FastRequest", request), reason) for request, reason in found]
