"""Collects the rows of evicted blocks and turns them into columns of the eviction table in bulk."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from sim.fast.keys import KeyTable
from sim.fast.pool import ALLOCATED, BLOCK, HITS, KEY, OWNER, ROW, USED, I64Array

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
        self._parts: list[bytes] = []
        self._notes: list[tuple[int, float, int, int]] = []
        self._rows = 0

    def evicted(self, rows: I64Array, for_index: int) -> None:
        """Blocks lost their keys to request `for_index`."""
        self._parts.append(rows.tobytes())
        self._note(for_index, len(rows))

    def evicted_one(self, row: bytes, for_index: int) -> None:
        """One block lost its key to request `for_index`."""
        self._parts.append(row)
        self._note(for_index, 1)

    def _note(self, for_index: int, count: int) -> None:
        self._notes.append((self.step, self.now_s, for_index, count))
        self._rows += count
        if self._rows >= BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected."""
        if not self._rows:
            return
        rows = np.frombuffer(b"".join(self._parts), dtype=np.int64).reshape(-1, ROW)
        step, now_s, for_index, count = (np.array(column) for column in zip(*self._notes, strict=True))
        self._parts, self._notes, self._rows = [], [], 0
        time_s = np.repeat(now_s, count)
        key = rows[:, KEY]
        times = rows.view(np.float64)
        self._sink.append(
            "evictions",
            {
                "time_s": time_s,
                "step": np.repeat(step, count),
                "block_id": rows[:, BLOCK].copy(),
                "group": np.zeros(len(rows), dtype=np.int64),
                "block_hash": self._keys.fingerprints[key],
                "depth_blocks": self._keys.depth[key].astype(np.int64),
                "lifetime_s": time_s - times[:, ALLOCATED],
                "idle_s": time_s - times[:, USED],
                "hits": rows[:, HITS].copy(),
                "evicted_for_request_index": np.repeat(for_index, count),
                "owner_request_index": rows[:, OWNER].copy(),
            },
        )
