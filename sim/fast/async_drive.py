"""Takes the steps of an asynchronous engine: a batch is put together while the one ahead of it runs."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import FastBatch
from sim.fast.dead_ends import DeadEnds
from sim.fast.eviction_rows import EvictionRows, Sink
from sim.fast.load import Load, StepSeconds, load_of, step_row
from sim.fast.request import FastRequest
from sim.fast.scheduler import FastScheduler

MOST_IN_FLIGHT = 2


class _InFlight(NamedTuple):
    """A batch that runs or will, and what its step's row needs."""

    batch: FastBatch
    load: Load
    state: tuple[int, int, int]
    evicted: int
    start_s: float
    end_s: float


class AsyncDrive:
    """Decides, times and records the steps of an asynchronous engine, each literally.

    Attributes:
        ended: requests that have ended by themselves, in order, until the engine takes them.
        step: number of the next step.
    """

    def __init__(
        self, config: SchedulerConfig, scheduler: FastScheduler, step_time: StepSeconds, sink: Sink, rows: EvictionRows
    ) -> None:
        self.scheduler = scheduler
        self.ended: list[FastRequest] = []
        self.step = 0
        self._batches: deque[_InFlight] = deque()
        self._free_at_s = 0.0
        self._dead_ends = DeadEnds(config, scheduler)
        self._step_time = step_time
        self._sink = sink
        self._rows = rows
        self._usable = config.num_gpu_blocks - 1

    @property
    def in_flight(self) -> int:
        """Batches with work that have been scheduled and not applied."""
        return sum(1 for made in self._batches if made.batch.entries)

    def advance(self, now_s: float, until_s: float, stop_at_end: bool) -> float | None:
        """Apply at least one batch, none but the first at or after `until_s`; see `FastEngine.advance`."""
        clock: float | None = None
        if self._free_at_s < now_s and not self.in_flight:
            self._batches.clear()  # the engine slept: what was left had no work
        while True:
            after = self._turn(now_s if clock is None else clock)
            if after is None:
                return clock
            clock = after
            if clock >= until_s or (self.ended and stop_at_end) or not (self.scheduler.alive or self.in_flight):
                return clock

    def withdraw(self, request: FastRequest) -> None:
        """A living request is about to be taken away between two steps."""

    def _turn(self, now_s: float) -> float | None:
        """Fill the pipeline and apply the oldest batch: when that one ends; None if nothing will happen."""
        scheduler, batches = self.scheduler, self._batches
        while True:
            made = self._schedule(now_s)
            to_come = any(other.batch.entries for other in batches)
            rejected = self._dead_ends.find(made.batch, others_in_flight=to_come)
            for request, reason in rejected:
                scheduler.reject(request, reason, now_s)
                self.ended.append(request)
            scheduled = bool(made.batch.entries)
            if not scheduled and not made.batch.preempted and not batches and scheduler.alive:
                self.step -= 1
                if not rejected:
                    return None
                continue
            batches.append(made)
            if len(batches) >= MOST_IN_FLIGHT or not (scheduled or scheduler.alive):
                break
        oldest = batches.popleft()
        self._apply(oldest)
        return oldest.end_s

    def _schedule(self, now_s: float) -> _InFlight:
        scheduler = self.scheduler
        scheduler.set_time(now_s)
        self._rows.step, self._rows.now_s = self.step, now_s
        evicted = scheduler.pool.evicted_blocks
        batch = scheduler.schedule(now_s)
        batch.step = self.step
        self.step += 1
        load = load_of(batch)
        start_s = max(now_s, self._free_at_s)
        end_s = start_s + (self._step_time.seconds(load) if batch.entries else 0.0)
        self._free_at_s = end_s
        state = len(scheduler.running), len(scheduler.waiting), scheduler.pool.free.count
        return _InFlight(batch, load, state, scheduler.pool.evicted_blocks - evicted, start_s, end_s)

    def _apply(self, made: _InFlight) -> None:
        batch = made.batch
        ended = self.scheduler.apply(batch, made.end_s)
        for request in ended:
            self.scheduler.finish(request, made.end_s)
        self.ended += ended
        for request, gap_s in batch.stalls:
            self._sink.row("stalls", (batch.step, request.index, gap_s))
        times = made.start_s, made.end_s
        self._sink.row("steps", step_row(batch, made.load, made.state, self._usable, made.evicted, times, len(ended)))
