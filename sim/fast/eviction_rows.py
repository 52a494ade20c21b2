"""Collects the rows of evicted blocks and turns them into columns of the eviction table in bulk."""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from sim.fast.keys import KeyTable
from sim.fast.pool import ALLOCATED, HITS, KEY, OWNER, ROW, USED, I32Array, I64Array, Takers

BUFFERED_ROWS = 1 << 16


class Sink(Protocol):
    """Where the rows of a run's tables go; see `sim.recording.recorder.Recorder`."""

    def wants(self, table: str) -> bool:
        """Whether rows of this table are of any use."""

    def append(self, table: str, columns: dict[str, Any]) -> None:
        """Append rows, one array for each column."""

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Append one row."""


class EvictionRows:
    """An `EvictionLog` that writes to the table ``evictions``.

    Attributes:
        step, now_s: set by the engine: the step that evicts, and the time at which it is scheduled.
    """

    def __init__(self, sink: Sink, keys: KeyTable) -> None:
        self.step = 0
        self.now_s = 0.0
        self._sink = sink
        self._keys = keys
        self._blocks: list[bytes] = []
        self._parts: list[bytes] = []
        self._counts: list[int] = []
        self._for: list[int] = []
        self._steps: list[int] = []
        self._times: list[float] = []
        self._rows = 0

    def evicted(self, blocks: I32Array, rows: I64Array, for_index: int) -> None:
        """Blocks lost their keys to request `for_index`."""
        self._note(blocks.tobytes(), rows.tobytes(), for_index, len(rows))

    def evicted_one(self, block: int, row: bytes, for_index: int) -> None:
        """One block lost its key to request `for_index`."""
        self._note(block.to_bytes(4, sys.byteorder), row, for_index, 1)

    def evicted_each(self, blocks: I32Array, rows: I64Array, takers: Takers) -> None:
        """One block lost its key to each of these requests."""
        count = len(rows)
        self._blocks.append(blocks.tobytes())
        self._parts.append(rows.tobytes())
        self._counts += [1] * count
        self._for += takers.indexes
        self._steps += takers.steps
        self._times += takers.times_s
        self._rows += count

    def _note(self, blocks: bytes, rows: bytes, for_index: int, count: int) -> None:
        self._blocks.append(blocks)
        self._parts.append(rows)
        self._counts.append(count)
        self._for.append(for_index)
        self._steps.append(self.step)
        self._times.append(self.now_s)
        self._rows += count
        if self._rows >= BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected."""
        if not self._rows:
            return
        rows = np.frombuffer(b"".join(self._parts), dtype=np.int64).reshape(-1, ROW)
        blocks = np.frombuffer(b"".join(self._blocks), dtype=np.int32)
        count = np.array(self._counts)
        time_s = np.repeat(np.array(self._times), count)
        step = np.repeat(np.array(self._steps), count)
        for_index = np.repeat(np.array(self._for), count)
        for column in (self._blocks, self._parts, self._counts, self._for, self._steps, self._times):
            column.clear()
        self._rows = 0
        key = rows[:, KEY]
        times = rows.view(np.float64)
        self._sink.append(
            "evictions",
            {
                "time_s": time_s,
                "step": step,
                "block_id": blocks.astype(np.int64),
                "group": np.zeros(len(rows), dtype=np.int64),
                "block_hash": self._keys.fingerprints[key],
                "depth_blocks": self._keys.depth[key].astype(np.int64),
                "lifetime_s": time_s - times[:, ALLOCATED],
                "idle_s": time_s - times[:, USED],
                "hits": rows[:, HITS].copy(),
                "evicted_for_request_index": for_index,
                "owner_request_index": rows[:, OWNER].copy(),
            },
        )
