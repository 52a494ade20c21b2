"""The block pool on arrays: reference counts, keys, and what the eviction table wants to know."""

from __future__ import annotations

import struct
from itertools import compress
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sim.errors import InvariantError
from sim.fast.free_log import FreeLog
from sim.fast.keys import KeyTable

I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: columns of a block's row: times are the bits of a float64, key 0 is none
ALLOCATED, USED, HITS, OWNER, KEY, ROW = 0, 1, 2, 3, 4, 5

_bits = struct.Struct("<d")
_whole = struct.Struct("<q")


def time_bits(seconds: float) -> int:
    """A time as the integer with the same 64 bits."""
    return int(_whole.unpack(_bits.pack(seconds))[0])


class Takers(NamedTuple):
    """Who takes a block, and when: one row each, in order."""

    indexes: list[int]
    steps: list[int]
    times_s: list[float]

    def where(self, mask: npt.NDArray[np.bool_]) -> Takers:
        """Those for which the mask is true."""
        return Takers(*(list(compress(values, mask.tolist())) for values in self))


class EvictionLog(Protocol):
    """Takes the rows (n, ROW) of blocks that lose their keys, in order; arrays are the taker's."""

    def evicted(self, blocks: I32Array, rows: I64Array, for_index: int) -> None:
        """Request `for_index` needed the room."""

    def evicted_one(self, block: int, row: bytes, for_index: int) -> None:
        """The same for one block, its row as bytes."""

    def evicted_each(self, blocks: I32Array, rows: I64Array, takers: Takers) -> None:
        """Block i was taken by taker i."""


class KeyEvents(Protocol):
    """Takes the keys that enter and leave the cache, in order."""

    def stored(self, keys: list[int], parent: int | None) -> None:
        """One call of blocks that were given their keys; `parent` is the key of the block before them."""

    def removed(self, key: int) -> None:
        """One block lost its key."""


class FastPool:
    """`num_blocks` blocks; block 0 is the null block, which nothing here ever hands out.

    Attributes:
        free: the free list.
        references: int32, number of requests that hold each block.
        rows: int64 (num_blocks, ROW), one row per block; only KEY is kept without a log.
        evicted_blocks: keys that left the cache, in total.
        phantom: blocks whose keys stand for content that was never computed.
        now_bits: the time, set by the scheduler.
    """

    def __init__(self, num_blocks: int, keys: KeyTable, log: EvictionLog | None, events: KeyEvents | None) -> None:
        self.num_blocks = num_blocks
        self.keys = keys
        self.free = FreeLog(num_blocks)
        self.references: I32Array = np.zeros(num_blocks, dtype=np.int32)
        self.rows: I64Array = np.zeros((num_blocks, ROW), dtype=np.int64)
        self._keys = self.rows[:, KEY]
        self._hits = self.rows[:, HITS]
        self._used = self.rows[:, USED]
        self._references_at = memoryview(self.references)
        self._rows_at = memoryview(self.rows)
        self.log = log
        self.events = events
        self.evicted_blocks = 0
        self.phantom: set[int] = set()
        self.now_bits = 0

    def take(self, number: int, index: int) -> I32Array:
        """Request `index` takes `number` ≥ 1 blocks from the front of the free list, which must have as many.

        They lose the keys that they still have and are held once.
        """
        if number == 1:
            return np.array((self.take_one(index),), dtype=np.int32)
        blocks = self.free.pop(number)
        evicted, rows, _ = self._evict(blocks)
        if self.events is not None:
            for key in rows[:, KEY].tolist():
                self.events.removed(key)
        if self.log is None:
            self._keys[blocks] = 0
        else:
            if len(rows):
                self.log.evicted(evicted, rows, index)
            self.rows[blocks] = (self.now_bits, self.now_bits, 0, index, 0)
        return blocks

    def take_one(self, index: int) -> int:
        """`take` for a single block."""
        block = self.free.pop_one()
        at = self._rows_at
        key = at[block, KEY]
        if key:
            if self.log is not None:
                self.log.evicted_one(block, self.rows[block].tobytes(), index)
            self.keys.remove_one(key, block)
            self.evicted_blocks += 1
            at[block, KEY] = 0
            if self.events is not None:
                self.events.removed(key)
            if self.phantom:
                self.phantom.discard(block)
        self._references_at[block] = 1
        if self.log is not None:
            at[block, ALLOCATED] = at[block, USED] = self.now_bits
            at[block, HITS] = 0
            at[block, OWNER] = index
        return block

    def take_each(self, takers: Takers) -> tuple[list[int], npt.NDArray[np.bool_] | None]:
        """Several requests take one block each: `take_one` for each in turn, at once.

        Returns:
            The blocks, and which of them lost a key (None: all did).
        """
        blocks = self.free.pop(len(takers.indexes))
        evicted, rows, had_key = self._evict(blocks)
        if self.log is None:
            self._keys[blocks] = 0
        else:
            if len(rows):
                self.log.evicted_each(evicted, rows, takers if had_key is None else takers.where(had_key))
            fresh = np.zeros((len(blocks), ROW), dtype=np.int64)
            times = np.array(takers.times_s).view(np.int64)
            fresh[:, ALLOCATED] = times
            fresh[:, USED] = times
            fresh[:, OWNER] = takers.indexes
            self.rows[blocks] = fresh
        return blocks.tolist(), had_key

    def _evict(self, blocks: I32Array) -> tuple[I32Array, I64Array, npt.NDArray[np.bool_] | None]:
        """These blocks are held once now, and their keys leave the cache.

        Returns the blocks that had keys and their rows, and which of `blocks` that is (None: all).
        """
        self.references[blocks] = 1
        rows = self.rows.take(blocks, axis=0)
        keys = rows[:, KEY]
        had_key = None
        if not keys.all():
            had_key = keys != 0
            blocks, rows = blocks[had_key], rows[had_key]
            keys = rows[:, KEY]
        if len(blocks):
            self.keys.remove(keys, blocks)
            self.evicted_blocks += len(blocks)
            if self.phantom:
                self.phantom.difference_update(blocks.tolist())
        return blocks, rows, had_key

    def unused(self, blocks: I32Array) -> int:
        """How many of these blocks nobody holds."""
        return len(blocks) - int(np.count_nonzero(self.references[blocks]))

    def touch(self, blocks: I32Array) -> None:
        """One more request holds these cached blocks; those that were free leave the free list."""
        held = self.references[blocks]
        free = blocks[held == 0]
        if len(free):
            self.free.remove(free)
        self.references[blocks] = held + 1
        if self.log is not None:
            self._hits[blocks] += 1

    def give_keys(self, base: int, blocks: I32Array) -> None:
        """These full blocks get the keys from `base` on."""
        self._keys[blocks] = np.arange(base, base + len(blocks))
        self.keys.insert(base, blocks)

    def release(self, table: I32Array, with_key: int) -> None:
        """A request lets go of its blocks, last to first; the first `with_key` of them have keys.

        Blocks that nobody holds any more become free: those without a key go first, those with one last.
        """
        rest = table[with_key:]
        if len(rest):
            self.references[rest] = 0
            self.free.prepend(rest[::-1].tolist())
        if with_key:
            blocks = table[with_key - 1 :: -1] if with_key == len(table) else table[:with_key][::-1]
            held = self.references[blocks] - 1
            self.references[blocks] = held
            if held.any():
                blocks = blocks[held == 0]
            self.free.append(blocks)
            if self.log is not None:
                self._used[blocks] = self.now_bits

    def check(self) -> None:
        """Verify all that must hold between operations; `InvariantError` names the first law that does not."""
        free = self.free.blocks()
        if len(free) != self.free.count:
            raise InvariantError(f"the free list counts {self.free.count} blocks but holds {len(free)}")
        if len(np.unique(free)) != len(free):
            raise InvariantError("a block stands twice in the free list")
        held = np.flatnonzero(self.references)
        if len(held) + len(free) != self.num_blocks - 1 or np.any(self.references[free]):
            raise InvariantError(f"{len(free)} free + {len(held)} held blocks are not {self.num_blocks - 1}")
        keys = self.keys
        found = np.flatnonzero(keys.first_block[: keys.size])
        if not np.array_equal(self.rows[keys.first_block[found], KEY], found):
            raise InvariantError("a key finds a block that does not have it")
        with_key = int(np.count_nonzero(self.rows[:, KEY]))
        if with_key != len(found) + sum(len(blocks) for blocks in keys.others.values()):
            raise InvariantError(f"{with_key} blocks have keys, but the table of keys knows another number")
