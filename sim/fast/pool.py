"""The block pool on arrays: reference counts, keys, and what the eviction table wants to know."""

from __future__ import annotations

from array import array
from itertools import compress
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sim.errors import InvariantError
from sim.fast.free_log import FreeLog
from sim.fast.keys import KeyTable
from sim.fast.watch import BlockWatch

I64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: a block's life is ``taking << HIT_BITS | hits``: which taking began it, and how often it was hit since
HIT_BITS = 24


_NONE = np.empty(0, dtype=np.bool_)


class Takers(NamedTuple):
    """Who takes a block, and when: one row each, in order."""

    indexes: list[int]
    steps: list[int]
    times_s: list[float]


class Evicted(NamedTuple):
    """Blocks that lost their keys, in order: their keys, lives, and when they were let go last."""

    blocks: I64Array
    keys: I64Array
    lives: I64Array
    used_s: FloatArray


class EvictionLog(Protocol):
    """Takes notice of evicted blocks, in order; the arrays are its own."""

    def evicted(self, evicted: Evicted, for_index: int) -> None:
        """Request `for_index` needed the room."""

    def evicted_each(self, evicted: Evicted, takers: Takers) -> None:
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
        references: of each block, the number of requests that hold it.
        block_keys: of each block, 0 for none.
        lives, used_s: of each block, see `Evicted`; kept only with a log.
        taken_s, takers: of each taking, when and for whom it was (one taking may be of many blocks).
        evicted_blocks: keys that left the cache, in total.
        watch: explains misses, if anything does.
        phantom: blocks whose keys stand for content that was never computed.
        now_s: the time, set by the scheduler.
    """

    def __init__(self, num_blocks: int, keys: KeyTable, log: EvictionLog | None, events: KeyEvents | None) -> None:
        self.num_blocks = num_blocks
        self.keys = keys
        self.free = FreeLog(num_blocks)
        self.references = np.zeros(num_blocks, dtype=np.int64)
        self.block_keys = np.zeros(num_blocks, dtype=np.int64)
        self.lives = np.zeros(num_blocks, dtype=np.int64)
        self.used_s = np.zeros(num_blocks)
        self.taken_s = array("d")
        self.takers = array("q")
        self.log = log
        self.events = events
        self.watch: BlockWatch | None = None
        self.evicted_blocks = 0
        self.phantom: set[int] = set()
        self.now_s = 0.0

    def take(self, number: int, index: int) -> I64Array:
        """Request `index` takes `number` ≥ 1 blocks from the front of the free list, which must have as many.

        They lose the keys that they still have and are held once.
        """
        blocks = self.free.pop(number)
        evicted, keys, _ = self._evict(blocks)
        if self.log is not None:
            if len(keys):
                self.log.evicted(Evicted(evicted, keys, self.lives[evicted], self.used_s[evicted]), index)
            self.lives[blocks] = len(self.taken_s) << HIT_BITS
            self.taken_s.append(self.now_s)
            self.takers.append(index)
        if self.watch is not None and len(keys):
            self.watch.evicted(evicted, keys, None)
        if self.events is not None:
            for key in keys.tolist():
                self.events.removed(key)
        return blocks

    def take_each(self, takers: Takers) -> tuple[I64Array, BoolArray | None]:
        """Several requests take one block each: `take` for each in turn, at once (without events).

        Returns:
            The blocks, and which of them lost a key: None for all, an empty array for none.
        """
        number = len(takers.indexes)
        blocks = self.free.pop(number)
        evicted, keys, had_key = self._evict(blocks)
        if len(keys) and (self.log is not None or self.watch is not None):
            losers = takers
            if had_key is not None:
                mask = had_key.tolist()
                losers = Takers(
                    list(compress(takers.indexes, mask)),
                    list(compress(takers.steps, mask)),
                    list(compress(takers.times_s, mask)),
                )
            if self.log is not None:
                self.log.evicted_each(Evicted(evicted, keys, self.lives[evicted], self.used_s[evicted]), losers)
            if self.watch is not None:
                self.watch.evicted(evicted, keys, losers)
        if self.log is not None:
            first = len(self.taken_s)
            self.lives[blocks] = np.arange(first, first + number) << HIT_BITS
            self.taken_s.extend(takers.times_s)
            self.takers.extend(takers.indexes)
        return blocks, had_key

    def _evict(self, blocks: I64Array) -> tuple[I64Array, I64Array, BoolArray | None]:
        """These blocks are held once now, and their keys leave the cache.

        Returns the blocks that had keys, these keys, and which of `blocks` that is, see `take_each`.
        """
        self.references[blocks] = 1
        keys = self.block_keys[blocks]
        with_key = int(np.count_nonzero(keys))
        if not with_key:
            return blocks[:0], keys[:0], _NONE
        had_key = None
        if with_key < len(blocks):
            had_key = keys != 0
            blocks, keys = blocks[had_key], keys[had_key]
        self.block_keys[blocks] = 0
        self.keys.remove(keys, blocks)
        self.evicted_blocks += with_key
        if self.phantom:
            self.phantom.difference_update(blocks.tolist())
        return blocks, keys, had_key

    def unused(self, blocks: I64Array) -> int:
        """How many of these blocks nobody holds."""
        return len(blocks) - int(np.count_nonzero(self.references[blocks]))

    def touch(self, blocks: I64Array) -> None:
        """One more request holds these cached blocks; those that were free leave the free list."""
        held = self.references[blocks]
        if np.count_nonzero(held) < len(blocks):
            self.free.remove(blocks[held == 0])
            if self.watch is not None:
                self.watch.left_free(blocks[held == 0])
        held += 1
        self.references[blocks] = held
        if self.log is not None:
            self.lives[blocks] += 1

    def give_keys(self, base: int, blocks: I64Array) -> None:
        """These full blocks get the keys from `base` on."""
        self.block_keys[blocks] = np.arange(base, base + len(blocks))
        self.keys.insert(base, blocks)

    def release(self, table: I64Array, with_key: int) -> None:
        """A request lets go of its blocks, last to first; the first `with_key` of them have keys.

        Blocks that nobody holds any more become free: those without a key go first, those with one last.
        """
        blocks = table[::-1]
        rest = len(blocks) - with_key
        if rest:
            self.references[blocks[:rest]] = 0
            self.free.prepend(blocks[:rest])
            blocks = blocks[rest:]
        if with_key:
            held = self.references[blocks]
            held -= 1
            self.references[blocks] = held
            if np.count_nonzero(held):
                blocks = blocks[held == 0]
            self.free.append(blocks)
            if self.watch is not None:
                self.watch.entered_free(blocks, self.block_keys[blocks])
            if self.log is not None:
                self.used_s[blocks] = self.now_s

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
        if not np.array_equal(self.block_keys[keys.first_block[found]], found):
            raise InvariantError("a key finds a block that does not have it")
        cached = int(np.count_nonzero(self.block_keys))
        if cached != len(found) + sum(len(blocks) for blocks in keys.others.values()):
            raise InvariantError(f"{cached} blocks have keys, but the table of keys knows another number")
