"""Requests on which an engine would never come to an end, as `sim.core.admission` tells them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast

from sim.core.admission import Admission
from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import FastBatch
from sim.fast.request import FastRequest
from sim.fast.waiting import WaitingQueue

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

    def __init__(self, config: SchedulerConfig, scheduler: FastScheduler) -> None:
        self._admission = Admission(config)
        self._view = cast("Scheduler", _View(scheduler))

    def find(self, batch: FastBatch, *, others_in_flight: bool = False) -> list[DeadEnd]:
        """Requests of which this batch makes certain that they never end.

        `others_in_flight`: results of earlier batches are still to come.
        """
        # the rules read a request by the core's names, which `FastRequest` has too
        output = SimpleNamespace(scheduled=dict(enumerate(batch.entries)), preempted=batch.preempted)
        found = self._admission.stuck(self._view, cast("SchedulerOutput", output), others_in_flight=others_in_flight)
        return [DeadEnd(cast("FastRequest", request), reason) for request, reason in found]


class _View:
    """What the rules read of a scheduler."""

    def __init__(self, scheduler: FastScheduler) -> None:
        self._scheduler = scheduler
        self.kv_cache_manager = self

    @property
    def running(self) -> list[FastRequest]:
        return self._scheduler.running

    @property
    def waiting(self) -> WaitingQueue:
        return self._scheduler.waiting

    def get_computed_blocks(self, request: FastRequest) -> tuple[None, int]:
        return None, self._scheduler.lookup(request) * self._scheduler.block_size
