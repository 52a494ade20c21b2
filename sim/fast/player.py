"""The fast engine one literal step at a time, with everything that a recording of the reference tells about a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.core.request import Request
from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import FastBatch
from sim.fast.request import FastRequest
from sim.fast.scheduler import FastScheduler
from workloads.spec import LoRA, MultiModalItem

_QUERIES = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")


class FastPlayer:
    """A `sim.parity.players.Player` on the fast path's literal step.

    Keys are told by the low 64 bits of the real hashes that the requests come with.
    """

    def __init__(self, config: SchedulerConfig, events: bool) -> None:
        self._events: list[list[Any]] = []
        self.scheduler = FastScheduler(config, events=self if events else None)
        self._alive: dict[str, FastRequest] = {}
        self._in_flight: deque[FastBatch] = deque()

    def add(self, request: Request) -> None:
        """A request arrives."""
        fast = FastRequest(
            request.index,
            request.request_id,
            prompt_tokens=request.num_prompt_tokens,
            answer_tokens=request.max_tokens,
            max_tokens=request.max_tokens,
            block_size=self.scheduler.block_size,
            max_model_len=self.scheduler.config.max_model_len,
            arrival_s=request.arrival_time,
            priority=request.priority,
            lora=None if request.lora_request is None else LoRA(request.lora_request.name, request.lora_request.id),
            items=tuple(
                MultiModalItem(identifier, position.offset, position.length)
                for identifier, position in zip(request.mm_hashes, request.mm_positions, strict=True)
            ),
        )
        for _ in range(request.max_tokens):
            request.append_output_token()  # the answer is known, and so are its hashes
        low = [int.from_bytes(block_hash[-8:], "big") for block_hash in request.block_hashes]
        self.scheduler.add(fast, np.array(low, dtype=np.uint64))
        self._alive[request.request_id] = fast

    def abort(self, request_ids: Sequence[str]) -> int:
        """Clients leave; ids that have ended already are left alone.  Says how many left."""
        gone = [self._alive.pop(name) for name in request_ids if name in self._alive]
        for request in gone:
            self.scheduler.abort(request, 0.0)
        return len(gone)

    def has_requests(self) -> bool:
        """Whether any request is alive."""
        return bool(self._alive)

    def schedule(self, details: bool) -> dict[str, Any]:
        """Put a batch in flight and tell what was decided; see `Player`."""
        scheduler = self.scheduler
        evicted = scheduler.pool.evicted_blocks
        batch = scheduler.schedule(0.0)
        self._in_flight.append(batch)
        fields: dict[str, Any] = {
            "scheduled": {entry.request.request_id: entry.tokens for entry in batch.entries},
            "prefix_cache": dict(zip(_QUERIES, batch.queries, strict=True)),
            "num_preempted": len(batch.preempted),
            "num_evicted": scheduler.pool.evicted_blocks - evicted,
        }
        if details:
            fields |= {
                "computed_before": {entry.request.request_id: entry.computed_before for entry in batch.entries},
                "block_ids": _new_blocks(batch),
                "preempted": sorted(request.request_id for request in batch.preempted),
                "encoder_inputs": {
                    request.request_id: items for request, items in batch.encoder_inputs.items() if items
                },
                "samples": sorted(entry.request.request_id for entry in batch.entries if entry.samples),
                "running": [request.request_id for request in scheduler.running],
                "waiting": len(scheduler.waiting),
                "events": self._drain(),
            }
        return fields

    def apply(self, details: bool) -> dict[str, Any]:
        """Apply the oldest batch: `finished` (ids), and with `details` `events_after`."""
        ended = self.scheduler.apply(self._in_flight.popleft(), 0.0)
        for request in ended:
            self.scheduler.finish(request, 0.0)
            del self._alive[request.request_id]
        fields: dict[str, Any] = {"finished": [request.request_id for request in ended]}
        if details:
            fields["events_after"] = self._drain()
        return fields

    def free_list(self) -> list[int]:
        """Ids of free blocks, front first."""
        ids: list[int] = self.scheduler.pool.free_blocks().tolist()
        return ids

    def counts(self) -> tuple[int, int]:
        """How many requests run and how many wait."""
        return len(self.scheduler.running), len(self.scheduler.waiting)

    def check(self) -> None:
        """Check all laws; raises `InvariantError`."""
        self.scheduler.check()

    # the pool tells its key events here

    def stored(self, keys: list[int], parent: int | None) -> None:
        """One call that gave keys to blocks."""
        above = None if parent is None else self._hex(parent)
        self._events.append(["stored", 0, [self._hex(key) for key in keys], above])

    def removed(self, key: int) -> None:
        """One block lost its key."""
        self._events.append(["removed", 0, [self._hex(key)]])

    def _hex(self, key: int) -> str:
        return f"{int(self.scheduler.keys.fingerprints[key]):016x}"

    def _drain(self) -> list[list[Any]]:
        events, self._events = self._events, []
        return events


def _new_blocks(batch: FastBatch) -> dict[str, list[list[int]]]:
    """Block ids that are new to each request of the batch: its whole table when it has just started."""
    new = {}
    for entry in batch.entries:
        blocks = entry.request.table[entry.blocks_before : entry.request.blocks].tolist()
        if blocks:
            new[entry.request.request_id] = [blocks]
    return new
