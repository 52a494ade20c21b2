"""The block pool with its moves in C: what `FastPool` does, several times as fast, where the kernel was compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sim.errors import InvariantError
from sim.fast.keys import KeyTable
from sim.fast.pool import FastPool, KeyEvents, check_pool
from sim.fast.watch import BlockWatch
from workloads.compiled import load

_KERNEL = load("sim.fast._kernel")
if TYPE_CHECKING:
    from sim.fast._kernel import Blocks
else:
    Blocks = object if _KERNEL is None else _KERNEL.Blocks

I64Array = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]
Columns = dict[str, AnyArray]

#: kinds of the columns in which the kernel notes runs of evicted blocks: seven of integers, three of seconds
_RUN_KINDS = (np.int64,) * 7 + (np.float64,) * 3

_LINE = 64  # bytes of a line of the processor's cache

# what the kernel knows of a block
_RECORD = np.dtype(
    [
        ("key", np.int64),
        ("taken_s", np.float64),
        ("used_s", np.float64),
        ("taker", np.int64),
        ("references", np.int32),
        ("hits", np.int32),
        ("next_same", np.int32),
        ("position", np.int32),
        ("unused", np.void, 16),
    ]
)

# columns of rows of evicted blocks, but for their ids, in the kernel's order
_ROW_COLUMNS: dict[str, type] = {
    "time_s": np.float64,
    "step": np.int64,
    "block_hash": np.uint64,
    "depth_blocks": np.int64,
    "lifetime_s": np.float64,
    "idle_s": np.float64,
    "hits": np.int64,
    "evicted_for_request_index": np.int64,
    "owner_request_index": np.int64,
}
_ROW_KINDS = tuple(_ROW_COLUMNS.values())


def compiled() -> bool:
    """Whether the kernel is there, and not switched off."""
    return _KERNEL is not None


def make_pool(
    num_blocks: int, keys: KeyTable, events: KeyEvents | None, watch: BlockWatch | None
) -> FastPool | KernelPool:
    """The pool of a fast engine: the kernel's where it can be, and nobody watches every block."""
    if compiled() and watch is None:
        return KernelPool(num_blocks, keys, events)
    return FastPool(num_blocks, keys, events, watch)


class KernelPool(Blocks):
    """A pool as `FastPool` describes it.

    Attributes:
        references: int32, of each block, the number of requests that hold it.
        phantom: blocks whose keys stand for content that was never computed.
    """

    def __init__(self, num_blocks: int, keys: KeyTable, events: KeyEvents | None = None) -> None:
        self.num_blocks = num_blocks
        self.keys = keys
        self.events = events
        self.phantom: set[int] = set()
        # filled rather than asked for as zeros, which do not get large pages: blocks are visited in no order
        self._records = np.empty(num_blocks, dtype=_RECORD)
        self._records.view(np.uint8)[:] = 0
        self._log = np.empty(4 * (num_blocks + 8), dtype=np.int32)
        self.references: AnyArray = self._records["references"]
        super().__init__(self._records, self._log, events, self.phantom)
        keys.on_growth(self._attach)

    def _attach(self) -> None:
        self.attach_keys(self.keys.fingerprints, self.keys.depth, self.keys.first_block)

    def free_blocks(self) -> I64Array:
        """All free blocks, the next to be reused first (a copy)."""
        part = self._log[self.head : self.tail]
        return np.asarray(part[part != 0], dtype=np.int64)

    def record(self, rows: int, on_full: Callable[[int, Callable[[], Columns]], None]) -> Callable[[], None]:
        """From now on evicted blocks are noted; for every `rows` of them `on_full` is told.

        It is given how many there are and what makes the columns of their rows, at any later time and in
        any thread.  Returns what hands over those that are left.
        """
        runs = tuple(_spread(rows, _RUN_KINDS, np.empty(_room(rows, _RUN_KINDS), dtype=np.uint8)))
        ids, memory = _Reused(8 * rows), _Reused(_room(rows, _ROW_KINDS))
        blocks = ids.piece().view(np.int64)

        def hand_over() -> None:
            nonlocal blocks
            count, evicted = self.num_rows, blocks
            noted = tuple([column[: self.num_runs].copy() for column in runs])
            blocks = ids.piece().view(np.int64)
            self.attach_runs(runs, blocks, hand_over)
            if count:
                # tables of keys only grow, into new arrays
                keys = self.keys.fingerprints, self.keys.depth
                on_full(count, partial(_expand, evicted[:count], noted, *keys, memory))

        self.attach_runs(runs, blocks, hand_over)
        return hand_over

    def check(self) -> None:
        """Verify all that must hold between operations; `InvariantError` names the first law that does not."""
        free = self.free_blocks()
        if self.num_free != len(free):
            raise InvariantError(f"the free list counts {self.num_free} blocks but holds {len(free)}")
        further = int(np.count_nonzero(self._records["next_same"]))
        check_pool(free, self.references, self._records["key"], self.keys, further)


class _Reused:
    """Pieces of memory of one size, each used again once nobody holds a view of it any more.

    Fresh memory would have to be zeroed by the system and cost more than filling it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._pieces: list[npt.NDArray[np.uint8]] = []

    def piece(self) -> npt.NDArray[np.uint8]:
        """One that nobody uses."""
        for number, references in enumerate(_references(self._pieces)):
            if references == _UNUSED:
                return self._pieces[number]
        self._pieces.append(np.empty(self._size, dtype=np.uint8))
        return self._pieces[-1]


def _references(pieces: list[npt.NDArray[np.uint8]]) -> list[int]:
    """How often each is referred to, with those references that come from asking."""
    return [sys.getrefcount(piece) for piece in pieces]


#: what is counted for one to which nothing but a list refers: not the same in every version of Python, so it is asked
_UNUSED = _references([np.empty(0, dtype=np.uint8)])[0]


def _expand(
    blocks: I64Array, runs: tuple[AnyArray, ...], fingerprints: AnyArray, depth: AnyArray, memory: _Reused
) -> Columns:
    """The rows of blocks that were noted in runs."""
    columns = _spread(len(blocks), _ROW_KINDS, memory.piece())
    _KERNEL.expand(runs, fingerprints, depth, tuple(columns))
    return {"block_id": blocks} | dict(zip(_ROW_COLUMNS, columns, strict=True))


def _room(length: int, kinds: Sequence[type]) -> int:
    """Bytes that `_spread` needs."""
    return sum(length * np.dtype(kind).itemsize + 6 * _LINE for kind in kinds)


def _spread(length: int, kinds: Sequence[type], memory: npt.NDArray[np.uint8]) -> list[AnyArray]:
    """Arrays in one piece of memory, which begin at different distances from a page's start.

    The kernel walks along all of them at once; at equal distances they would fight for the same lines
    of the processor's cache (measured: twice the time for a row).
    """
    arrays: list[AnyArray] = []
    start = 0
    for kind in kinds:
        size = length * np.dtype(kind).itemsize
        arrays.append(memory[start : start + size].view(kind))
        start += -(-size // _LINE) * _LINE + 5 * _LINE
    return arrays
