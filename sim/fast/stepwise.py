"""The fast engine one step at a time, with everything that a recording of the reference tells about a step."""

from __future__ import annotations

import hashlib
from typing import Any

from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import FastBatch
from sim.fast.request import FastRequest
from sim.fast.scheduler import FastScheduler


class EventList:
    """Key events in the form of a recording; keys are told by the fingerprints that requests came with."""

    def __init__(self) -> None:
        self.scheduler: FastScheduler | None = None
        self._events: list[list[Any]] = []

    def _hex(self, key: int) -> str:
        assert self.scheduler is not None
        return f"{int(self.scheduler.keys.fingerprints[key]):016x}"

    def stored(self, keys: list[int], parent: int | None) -> None:
        """One call that gave keys to blocks."""
        above = None if parent is None else self._hex(parent)
        self._events.append(["stored", 0, [self._hex(key) for key in keys], above])

    def removed(self, key: int) -> None:
        """One block lost its key."""
        self._events.append(["removed", 0, [self._hex(key)]])

    def drain(self) -> list[list[Any]]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events


class StepwiseEngine:
    """Schedules and applies explicit batches, and says of each what a recording says."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.events = EventList()
        self.scheduler = FastScheduler(config, events=self.events)
        self.events.scheduler = self.scheduler

    def schedule(self, now_s: float) -> tuple[FastBatch, dict[str, Any]]:
        """Schedule a batch; with it the fields that a recording has of this."""
        scheduler = self.scheduler
        batch = scheduler.schedule(now_s)
        fields: dict[str, Any] = {
            "scheduled": {entry.request.request_id: entry.tokens for entry in batch.entries},
            "computed_before": {entry.request.request_id: entry.computed_before for entry in batch.entries},
            "block_ids": _new_blocks(batch),
            "preempted": sorted(request.request_id for request in batch.preempted),
            "encoder_inputs": {request.request_id: items for request, items in batch.encoder_inputs.items()},
            "samples": sorted(entry.request.request_id for entry in batch.entries if entry.samples),
            "running": [request.request_id for request in scheduler.running],
            "waiting": len(scheduler.waiting),
            "num_free_blocks": scheduler.pool.free.count,
            "free_queue_sha": self.free_sha(),
            "free_queue_head": scheduler.pool.free.blocks()[:6].tolist(),
            "events": self.events.drain(),
            "prefix_cache": dict(zip(_QUERIES, batch.queries, strict=True)),
        }
        return batch, fields

    def apply(self, batch: FastBatch, now_s: float) -> list[FastRequest]:
        """Apply a batch; the requests that ended, in the order in which they had arrived."""
        ended = self.scheduler.apply(batch, now_s)
        for request in ended:
            self.scheduler.finish(request, now_s)
        return sorted(ended, key=lambda request: request.index)

    def free_sha(self) -> str:
        """The free list as recordings give it: SHA-256 of its ids joined by commas, 16 hex digits."""
        ids = ",".join(map(str, self.scheduler.pool.free.blocks().tolist()))
        return hashlib.sha256(ids.encode()).hexdigest()[:16]


_QUERIES = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")


def _new_blocks(batch: FastBatch) -> dict[str, list[list[int]]]:
    """Block ids that are new to each request of the batch: its whole table when it has just started."""
    new = {}
    for entry in batch.entries:
        blocks = entry.request.table[entry.blocks_before : entry.request.blocks].tolist()
        if blocks:
            new[entry.request.request_id] = [blocks]
    return new
