"""The block pool on arrays: reference counts, keys, and what the eviction table wants to know."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sim.errors import InvariantError
from sim.fast.free_log import FreeLog
from sim.fast.keys import KeyTable, Span
from sim.fast.watch import BlockWatch

I64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]

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

    A request's table is an int64 array of block ids; the first so many entries of it are in use.

    Args:
        num_blocks: blocks of the pool, the null block included.
        keys: the keys of blocks.
        events: told of keys that enter and leave the cache.
        watch: explains misses.

    Attributes:
        free: the free list.
        references: of each block, the number of requests that hold it.
        block_keys: of each block, 0 for none.
        lives, used_s: of each block, see `Evicted`; kept only with a log.
        taken_s, takers: of each taking, when and for whom it was (one taking may be of many blocks).
        log: told of evicted blocks.
        evicted_blocks: keys that left the cache, in total.
        phantom: blocks whose keys stand for content that was never computed.
        now_s: the time, set by the scheduler.
        step, scheduled_s: the step in which blocks change hands, and when it was scheduled.
    """

    def __init__(
        self, num_blocks: int, keys: KeyTable, events: KeyEvents | None = None, watch: BlockWatch | None = None
    ) -> None:
        self.num_blocks = num_blocks
        self.keys = keys
        self.free = FreeLog(num_blocks)
        self.references = np.zeros(num_blocks, dtype=np.int64)
        self.block_keys = np.zeros(num_blocks, dtype=np.int64)
        self.lives = np.zeros(num_blocks, dtype=np.int64)
        self.used_s = np.zeros(num_blocks)
        self.taken_s = array("d")
        self.takers = array("q")
        self.log: EvictionLog | None = None
        self.events = events
        self.watch = watch
        self.evicted_blocks = 0
        self.phantom: set[int] = set()
        self.now_s = self.scheduled_s = 0.0
        self.step = 0

    @property
    def num_free(self) -> int:
        """Number of free blocks."""
        return self.free.count

    def free_blocks(self) -> I64Array:
        """All free blocks, the next to be reused first (a copy)."""
        return self.free.blocks()

    def begin_step(self, step: int, now_s: float) -> None:
        """Blocks change hands in this step, at this time."""
        self.step = step
        self.now_s = self.scheduled_s = now_s

    def take(self, number: int, index: int, table: I64Array, at: int) -> None:
        """Request `index` takes `number` blocks from the front of the free list, which must have as many.

        They lose the keys that they still have, are held once, and stand in `table` from `at` on.
        """
        blocks = self.free.pop(number)
        table[at : at + number] = blocks
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

    def take_each(self, indexes: list[int], sizes: list[int], times_s: list[float]) -> tuple[list[int], list[int]]:
        """Several requests take one block each: `take` for each in turn, at once (without events).

        Args:
            indexes: who takes, in order.
            sizes: how many of them take theirs in this step, in the one after it, and so on.
            times_s: when each of these steps is scheduled.

        Returns:
            The blocks, and how many keys each step costs.
        """
        number = len(indexes)
        blocks = self.free.pop(number)
        evicted, keys, had_key = self._evict(blocks)
        takers = Takers(indexes, [], [])
        if self.log is not None or (self.watch is not None and len(keys)):
            takers = _takers(indexes, sizes, times_s, self.step)
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
        if had_key is None:
            return blocks.tolist(), sizes
        lost = iter(had_key.tolist())
        return blocks.tolist(), [sum(islice(lost, size)) for size in sizes]

    def _evict(self, blocks: I64Array) -> tuple[I64Array, I64Array, BoolArray | None]:
        """These blocks are held once now, and their keys leave the cache.

        Returns the blocks that had keys, these keys, and which of `blocks` that is: None for all, an
        empty array for none.
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

    def find(self, spans: Sequence[Span], most: int, table: I64Array) -> int:
        """How many of a request's first `most` blocks are cached, without a gap; they are put into `table`."""
        first_block, found = self.keys.first_block, 0
        for first, base, length in spans:
            if first >= most:
                break
            part = first_block[base : base + min(length, most - first)]
            hits = len(part)
            if np.count_nonzero(part) < hits:
                hits = int((part == 0).argmax())
            table[first : first + hits] = part[:hits]
            found = first + hits
            if hits < length:
                break
        return found

    def unused(self, table: I64Array, stop: int) -> int:
        """How many of the first `stop` blocks of a table nobody holds."""
        return stop - int(np.count_nonzero(self.references[table[:stop]]))

    def touch(self, table: I64Array, stop: int) -> None:
        """One more request holds the first `stop` blocks of its table; those that were free leave the free list."""
        blocks = table[:stop]
        held = self.references[blocks]
        if np.count_nonzero(held) < stop:
            self.free.remove(blocks[held == 0])
            if self.watch is not None:
                self.watch.left_free(blocks[held == 0])
        held += 1
        self.references[blocks] = held
        if self.log is not None:
            self.lives[blocks] += 1

    def give_keys(self, spans: Sequence[Span], table: I64Array, start: int, stop: int) -> None:
        """Blocks ``start … stop - 1`` of a table, which are full, get their keys."""
        for first, base, length in reversed(spans):  # the newest blocks are among the last keys
            end = first + length
            if end <= start:
                break
            if first < stop:
                low = first if first > start else start
                blocks = table[low : end if end < stop else stop]
                key = base + low - first
                self.block_keys[blocks] = np.arange(key, key + len(blocks))
                self.keys.insert(key, blocks)

    def release(self, table: I64Array, blocks: int, with_key: int) -> None:
        """A request lets go of the first `blocks` of its table, last to first; the first `with_key` have keys.

        Blocks that nobody holds any more become free: those without a key go first, those with one last.
        """
        if blocks > with_key:
            rest = table[with_key:blocks][::-1]
            self.references[rest] = 0
            self.free.prepend(rest)
        if with_key:
            kept = table[:with_key][::-1]
            held = self.references[kept]
            held -= 1
            self.references[kept] = held
            if np.count_nonzero(held):
                kept = kept[held == 0]
            self.free.append(kept)
            if self.watch is not None:
                self.watch.entered_free(kept, self.block_keys[kept])
            if self.log is not None:
                self.used_s[kept] = self.now_s

    def check(self) -> None:
        """Verify all that must hold between operations; `InvariantError` names the first law that does not."""
        if self.free.count != len(self.free.blocks()):
            raise InvariantError(f"the free list counts {self.free.count} blocks but holds {len(self.free.blocks())}")
        further = sum(len(blocks) for blocks in self.keys.others.values())
        check_pool(self.free_blocks(), self.references, self.block_keys, self.keys, further)


def check_pool(free: I64Array, references: AnyArray, block_keys: AnyArray, keys: KeyTable, further: int) -> None:
    """Raise `InvariantError` unless a pool agrees with itself.

    Args:
        free: free blocks in order.
        references, block_keys: of each block.
        keys: the table of keys.
        further: how many blocks have a key that finds another block.
    """
    if len(np.unique(free)) != len(free):
        raise InvariantError("a block stands twice in the free list")
    held = np.flatnonzero(references)
    if len(held) + len(free) != len(references) - 1 or np.any(references[free]):
        raise InvariantError(f"{len(free)} free + {len(held)} held blocks are not {len(references) - 1}")
    found = np.flatnonzero(keys.first_block[: keys.size])
    if not np.array_equal(block_keys[keys.first_block[found]], found):
        raise InvariantError("a key finds a block that does not have it")
    cached = int(np.count_nonzero(block_keys))
    if cached != len(found) + further:
        raise InvariantError(f"{cached} blocks have keys, but the table of keys knows another number")


def _takers(indexes: list[int], sizes: list[int], times_s: list[float], step: int) -> Takers:
    if len(sizes) == 1:
        return Takers(indexes, [step] * len(indexes), times_s[:1] * len(indexes))
    steps = [step + ahead for ahead, size in enumerate(sizes) for _ in range(size)]
    times = [time_s for time_s, size in zip(times_s, sizes, strict=False) for _ in range(size)]
    return Takers(indexes, steps, times)
