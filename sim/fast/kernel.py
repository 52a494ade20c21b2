"""The block pool with its moves in C: what `FastPool` does, several times as fast, where the kernel was compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

_LINE = 64  # bytes of a line of the processor's cache

# columns of rows of evicted blocks, in the kernel's order
ROW_COLUMNS: dict[str, type] = {
    "time_s": np.float64,
    "step": np.int64,
    "block_id": np.int64,
    "block_hash": np.uint64,
    "depth_blocks": np.int64,
    "lifetime_s": np.float64,
    "idle_s": np.float64,
    "hits": np.int64,
    "evicted_for_request_index": np.int64,
    "owner_request_index": np.int64,
}


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
        i32, i64, f64 = np.int32, np.int64, np.float64
        references, block_keys, next_same, position, taken_s, used_s, takers, hits = _spread(
            num_blocks, (i32, i64, i32, i32, f64, f64, i64, i32)
        )
        self.references, self._block_keys, self._next_same = references, block_keys, next_same
        self._log = np.zeros(4 * (num_blocks + 8), dtype=np.int32)
        state = (references, block_keys, next_same, self._log, position, taken_s, used_s, takers, hits)
        super().__init__(state, events, self.phantom)
        keys.on_growth(self._attach)

    def _attach(self) -> None:
        self.attach_keys(self.keys.fingerprints, self.keys.depth, self.keys.first_block)

    def free_blocks(self) -> I64Array:
        """All free blocks, the next to be reused first (a copy)."""
        part = self._log[self.head : self.tail]
        return np.asarray(part[part != 0], dtype=np.int64)

    def record(self, rows: int, on_full: Callable[[dict[str, npt.NDArray[Any]]], None]) -> Callable[[], None]:
        """From now on evicted blocks get rows; `on_full` is given their columns, `rows` rows at a time.

        Returns what hands over the rows that are left.
        """
        columns: dict[str, npt.NDArray[Any]] = {}

        def hand_over() -> None:
            done, count = dict(columns), self.row
            attach()
            if count:
                on_full({name: values[:count] for name, values in done.items()})

        def attach() -> None:
            columns.update(zip(ROW_COLUMNS, _spread(rows, list(ROW_COLUMNS.values()), np.empty), strict=True))
            self.attach_rows(tuple(columns.values()), hand_over)

        attach()
        return hand_over

    def check(self) -> None:
        """Verify all that must hold between operations; `InvariantError` names the first law that does not."""
        free = self.free_blocks()
        if self.num_free != len(free):
            raise InvariantError(f"the free list counts {self.num_free} blocks but holds {len(free)}")
        further = int(np.count_nonzero(self._next_same))
        check_pool(free, self.references, self._block_keys, self.keys, further)


def _spread(
    length: int, kinds: Sequence[type], make: Callable[..., npt.NDArray[np.uint8]] = np.zeros
) -> list[npt.NDArray[Any]]:
    """Arrays in one piece of memory, made by `make`, which begin at different distances
    from a page's start.

    The kernel walks along all of them at once; at equal distances they would fight for the same lines
    of the processor's cache (measured: twice the time for a row).
    """
    sizes = [np.dtype(kind).itemsize for kind in kinds]
    starts = np.cumsum([0] + [-(-length * size // _LINE) * _LINE + 5 * _LINE for size in sizes])
    memory = make(int(starts[-1]), dtype=np.uint8)
    return [
        memory[start : start + length * size].view(kind)
        for start, size, kind in zip(starts.tolist(), sizes, kinds, strict=False)
    ]
