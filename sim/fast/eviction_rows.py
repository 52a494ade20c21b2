"""Collects the rows of evicted blocks and turns them into columns of the eviction table in bulk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sim.fast.kernel import Columns, KernelPool
from sim.fast.pool import HIT_BITS, Evicted, FastPool, Takers

BUFFERED_ROWS = 1 << 18  # a row group of `sim.recording.recorder`, so that each is written in one piece


class Sink(Protocol):
    """Where the rows of a run's tables go; see `sim.recording.recorder.Recorder`."""

    def wants(self, table: str) -> bool:
        """Whether rows of this table are of any use."""

    def append(self, table: str, columns: dict[str, Any]) -> None:
        """Append rows, one array for each column."""

    def append_later(self, table: str, count: int, make: Callable[[], dict[str, Any]]) -> None:
        """Append `count` rows whose columns `make` gives, at any later time and in another thread."""

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Append one row."""

    def add_rows(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Append rows."""


def eviction_rows(sink: Sink, pool: FastPool | KernelPool) -> Callable[[], None]:
    """From now on the evictions of a pool are rows of the table ``evictions``.

    Returns what hands over the rows that are held back.
    """
    if isinstance(pool, FastPool):
        pool.log = rows = EvictionRows(sink, pool)
        return rows.flush

    def columns(count: int, make: Callable[[], Columns]) -> Columns:
        return make() | {"group": np.zeros(count, dtype=np.int64)}

    return pool.record(
        BUFFERED_ROWS, lambda count, make: sink.append_later("evictions", count, partial(columns, count, make))
    )


class EvictionRows:
    """An `EvictionLog` that writes to the table ``evictions``."""

    def __init__(self, sink: Sink, pool: FastPool) -> None:
        self._sink = sink
        self._pool = pool
        self._keys = pool.keys
        self._parts: list[Evicted] = []
        #: (step, time, for whom, how many) of what is in `_parts`
        self._notes: list[tuple[int, float, int, int]] = []
        self._count = 0

    def evicted(self, evicted: Evicted, for_index: int) -> None:
        """Blocks lost their keys to request `for_index`."""
        self._parts.append(evicted)
        self._notes.append((self._pool.step, self._pool.scheduled_s, for_index, len(evicted.blocks)))
        self._added(len(evicted.blocks))

    def evicted_each(self, evicted: Evicted, takers: Takers) -> None:
        """Block i lost its key to taker i."""
        self._parts.append(evicted)
        self._notes += zip(takers.steps, takers.times_s, takers.indexes, repeat(1))
        self._added(len(evicted.blocks))

    def _added(self, count: int) -> None:
        self._count += count
        if self._count >= BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Hand over what has been collected; the columns are made when they are written."""
        if not self._count:
            return
        count, parts, notes = self._count, self._parts, self._notes
        self._parts, self._notes, self._count = [], [], 0
        # tables of keys only grow, into new arrays; those of takings grow in place, hence the copies
        fingerprints, depths = self._keys.fingerprints, self._keys.depth
        taken_s, takers = np.array(self._pool.taken_s), np.array(self._pool.takers)
        self._sink.append_later(
            "evictions", count, lambda: _columns(parts, notes, fingerprints, depths, taken_s, takers)
        )


def _columns(
    parts: list[Evicted],
    notes: list[tuple[int, float, int, int]],
    fingerprints: npt.NDArray[np.uint64],
    depths: npt.NDArray[np.int32],
    taken_s: npt.NDArray[np.float64],
    takers: npt.NDArray[np.int64],
) -> dict[str, Any]:
    """The columns of the eviction table for blocks that were evicted."""
    blocks, keys, lives, used_s = (np.concatenate(column) for column in zip(*parts, strict=True))
    count = np.array([note[3] for note in notes])
    step, now_s, for_index = (np.array(column) for column in list(zip(*notes, strict=True))[:3])
    time_s = np.repeat(now_s, count)
    takings = lives >> HIT_BITS
    return {
        "time_s": time_s,
        "step": np.repeat(step, count),
        "block_id": blocks,
        "group": np.zeros(len(blocks), dtype=np.int64),
        "block_hash": fingerprints[keys],
        "depth_blocks": depths[keys].astype(np.int64),
        "lifetime_s": time_s - taken_s[takings],
        "idle_s": time_s - used_s,
        "hits": lives & ((1 << HIT_BITS) - 1),
        "evicted_for_request_index": np.repeat(for_index, count),
        "owner_request_index": takers[takings],
    }
