"""Engines that a recording can be played on.  A player tells each step in the fields of the recordings."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from sim.core.async_scheduler import AsyncScheduler
from sim.core.events import BlockRemoved, BlockStored, KVCacheEvent, event_hash
from sim.core.request import Request, RequestStatus
from sim.core.scheduler import Scheduler
from sim.core.scheduler_config import SchedulerConfig
from sim.core.scheduler_output import SchedulerOutput

Fields = dict[str, Any]
STATISTICS = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")


class Player(Protocol):
    """Plays one recording.  Batches are applied oldest first."""

    def add(self, request: Request) -> None:
        """A request arrives."""
        ...

    def abort(self, request_ids: Sequence[str]) -> int:
        """Clients leave; ids that have ended already are left alone.  Says how many left."""
        ...

    def has_requests(self) -> bool:
        """Whether any request is alive."""
        ...

    def schedule(self, details: bool) -> Fields:
        """Put a batch in flight and tell what was decided.

        Always told: `scheduled` and `prefix_cache`, `num_preempted`, `num_evicted` (keys).  With
        `details` all fields of a step before its end.
        """
        ...

    def apply(self, details: bool) -> Fields:
        """Apply the oldest batch: `finished` (ids), and with `details` `events_after`."""
        ...

    def free_list(self) -> list[int]:
        """Ids of free blocks, front first."""
        ...

    def counts(self) -> tuple[int, int]:
        """How many requests run and how many wait."""
        ...

    def check(self) -> None:
        """Check all laws; raises `InvariantError`."""
        ...


def free_queue_sha(ids: Sequence[int]) -> str:
    """The recordings' digest of a free list."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


def event_fields(events: Sequence[KVCacheEvent]) -> list[list[Any]]:
    """Events as the recordings write them."""
    out: list[list[Any]] = []
    for event in events:
        if isinstance(event, BlockStored):
            parent = event.parent_block_hash
            hashes = [f"{event_hash(value):016x}" for value in event.block_hashes]
            out.append(["stored", event.group_id, hashes, None if parent is None else f"{event_hash(parent):016x}"])
        elif isinstance(event, BlockRemoved):
            out.append(["removed", event.group_id, [f"{event_hash(value):016x}" for value in event.block_hashes]])
        else:
            out.append(["cleared"])
    return out


class ReferencePlayer:
    """Plays on the readable core."""

    def __init__(self, config: SchedulerConfig, events: bool) -> None:
        make = AsyncScheduler if config.async_scheduling else Scheduler
        self.scheduler = make(config, enable_kv_cache_events=events)
        self._in_flight: deque[SchedulerOutput] = deque()
        self._pool = self.scheduler.kv_cache_manager.block_pool

    def add(self, request: Request) -> None:
        """A request arrives."""
        self.scheduler.add_request(request)

    def abort(self, request_ids: Sequence[str]) -> int:
        """Clients leave."""
        return len(self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED))

    def has_requests(self) -> bool:
        """Whether any request is alive."""
        return self.scheduler.has_requests()

    def schedule(self, details: bool) -> Fields:
        """Put a batch in flight and tell what was decided."""
        evicted = self._pool.num_evicted_keys
        output = self.scheduler.schedule()
        self._in_flight.append(output)
        entries = output.scheduled
        fields: Fields = {
            "scheduled": {name: entry.num_tokens for name, entry in entries.items()},
            "prefix_cache": {name: getattr(output.prefix_cache_stats, name) for name in STATISTICS},
            "num_preempted": len(output.preempted),
            "num_evicted": self._pool.num_evicted_keys - evicted,
        }
        if details:
            fields |= {
                "computed_before": {name: entry.num_computed for name, entry in entries.items()},
                "block_ids": {
                    name: [list(ids) for ids in entry.new_block_ids]
                    for name, entry in entries.items()
                    if any(entry.new_block_ids)
                },
                "preempted": sorted(request.request_id for request in output.preempted),
                "encoder_inputs": {
                    name: entry.encoder_inputs for name, entry in entries.items() if entry.encoder_inputs
                },
                "samples": sorted(name for name, entry in entries.items() if entry.samples),
                "running": [request.request_id for request in self.scheduler.running],
                "waiting": len(self.scheduler.waiting),
                "events": event_fields(self.scheduler.kv_cache_manager.take_events()),
            }
        return fields

    def apply(self, details: bool) -> Fields:
        """Apply the oldest batch."""
        ended = self.scheduler.update_from_output(self._in_flight.popleft())
        fields: Fields = {"finished": [request.request_id for request in ended]}
        if details:
            fields["events_after"] = event_fields(self.scheduler.kv_cache_manager.take_events())
        return fields

    def free_list(self) -> list[int]:
        """Ids of free blocks, front first."""
        return [block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()]

    def counts(self) -> tuple[int, int]:
        """How many requests run and how many wait."""
        return len(self.scheduler.running), len(self.scheduler.waiting)

    def check(self) -> None:
        """Check all laws."""
        self.scheduler.check()
