"""The interface of an eviction policy: a free queue with another order.

To write one, subclass `EvictionPolicy` and give it four methods: `add`, `discard`, `victim`, `order`; or
subclass `RankedPolicy` and give it one: `rank`.  The pool only ever hands over blocks that nobody
holds: a hit takes a block out of the queue, and it comes back when the request lets go of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from sim.core.block import BlockKey, KVCacheBlock
from sim.errors import InvariantError
from sim.eviction.facts import BlockView
from sim.eviction.ranked import RankedBlocks


class Future(Protocol):
    """What is to come; only policies marked `needs_future` get one."""

    def next_use(self, key: BlockKey) -> float:
        """When the key is wanted next, in any unit that grows with time; infinity for never."""
        ...

    def advance(self, index: int) -> None:
        """The request with this index is being served."""
        ...


@dataclass(frozen=True)
class PolicyContext:
    """What a policy may look at.

    `view` has the facts of blocks, `rng` is the policy's own random generator, `future` is None unless the
    policy's class says `needs_future`.
    """

    view: BlockView
    rng: np.random.Generator
    future: Future | None = None


class EvictionPolicy(ABC):
    """A free queue.

    Blocks without a key cannot be hit and go first, in a queue of their own; the four methods to write
    deal with blocks that have one.  Settings of a policy are keyword arguments of its constructor.

    Args:
        blocks: all blocks of the pool, none of which has a key yet, in the order in which they are used first.
        context: what the policy may look at.
    """

    needs_future: ClassVar[bool] = False

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        self.view = context.view
        self.capacity = len(blocks)
        self._keyless: OrderedDict[int, KVCacheBlock] = OrderedDict((block.block_id, block) for block in blocks)
        self._keyed: set[int] = set()

    # ---- to write -------------------------------------------------------------------------------

    @abstractmethod
    def add(self, block: KVCacheBlock) -> None:
        """Take in a cached block that nobody holds any more.  A request lets go of its last block first."""

    @abstractmethod
    def discard(self, block: KVCacheBlock) -> None:
        """Take out a block that was added before and is hit now."""

    @abstractmethod
    def victim(self) -> KVCacheBlock:
        """Choose the added block to evict, and take it out.  Called only while there is one."""

    @abstractmethod
    def order(self) -> list[KVCacheBlock]:
        """All added blocks, the next victim first as far as the policy knows now.  Changes nothing."""

    # ---- to write where wanted ------------------------------------------------------------------

    def serving(self, request_index: int) -> None:  # noqa: B027  optional
        """What follows is done for this request."""

    def cached(self, block: KVCacheBlock) -> None:  # noqa: B027  optional
        """A block in use got its key."""

    def hit(self, block: KVCacheBlock) -> None:  # noqa: B027  optional
        """A cached block was hit, whether it was free or in use."""

    def on_evicted(self, block: KVCacheBlock) -> None:  # noqa: B027  optional
        """A block is about to lose its key; the view still has its facts."""

    # ---- the free queue -------------------------------------------------------------------------

    @property
    def num_free_blocks(self) -> int:
        """Number of free blocks."""
        return len(self._keyless) + len(self._keyed)

    def popleft(self) -> KVCacheBlock:
        """Take the block to reuse next.  Raises `ValueError` when none is free."""
        if self._keyless:
            return self._keyless.popitem(last=False)[1]
        if not self._keyed:
            raise ValueError("No free blocks available")
        block = self.victim()
        self._keyed.discard(block.block_id)
        return block

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the n blocks to reuse next.  Raises `ValueError`, the queue unchanged, when there are fewer."""
        if n > self.num_free_blocks:
            raise ValueError(f"cannot take {n} blocks: {self.num_free_blocks} are free")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        """Take out a block that was hit.  Raises `RuntimeError` naming a block that is not free."""
        if block.block_id in self._keyed:
            self._keyed.discard(block.block_id)
            self.discard(block)
        elif self._keyless.pop(block.block_id, None) is None:
            raise RuntimeError(f"remove() called on a block that is not free: {block}")

    def append(self, block: KVCacheBlock) -> None:
        """Take in one cached block."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take in cached blocks in this order."""
        for block in blocks:
            self._keyed.add(block.block_id)
            self.add(block)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take in blocks that cannot be hit, the first of them to be reused first."""
        for block in reversed(blocks):
            self._keyless[block.block_id] = block
            self._keyless.move_to_end(block.block_id, last=False)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks in the order of reuse, as far as the policy knows now."""
        return [*self._keyless.values(), *self.order()]

    def evicted(self, block: KVCacheBlock) -> None:
        """A block loses its key.  One that is still free, its content dropped from outside, is reused first now."""
        self.on_evicted(block)
        if block.block_id in self._keyed:
            self._keyed.discard(block.block_id)
            self.discard(block)
            self.prepend_n((block,))

    def cleared(self) -> None:
        """All blocks lost their keys; every one of them is free."""
        blocks = self.order()
        for block in blocks:
            self.on_evicted(block)
            self._keyed.discard(block.block_id)
            self.discard(block)
        self.prepend_n(blocks)

    def check(self) -> None:
        """Raise `InvariantError` unless the order has each free block once and none in use."""
        order = self.order()
        ids = [block.block_id for block in order]
        if len(set(ids)) != len(ids) or set(ids) != self._keyed:
            odd = sorted(set(ids) ^ self._keyed) or sorted(ids)
            raise InvariantError(f"law 1: {type(self).__name__} has other blocks in its order than were given: {odd}")
        for block in self.get_all_free_blocks():
            if block.ref_cnt or block.is_null:
                raise InvariantError(f"law 4: {block} is free and in use")


class RankedPolicy(EvictionPolicy):
    """Gives each block a rank when it comes in; the lowest goes first, among equals the one there longest.

    All operations cost O(log n).
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        super().__init__(blocks, context)
        self._ranked = RankedBlocks()

    @abstractmethod
    def rank(self, block: KVCacheBlock) -> Any:
        """The rank of a block that comes in now: anything that can be compared."""

    def left(self, block: KVCacheBlock, rank: Any) -> None:
        """A victim was chosen; it had this rank."""

    def add(self, block: KVCacheBlock) -> None:
        """Rank it."""
        self._ranked.add(block, self.rank(block))

    def discard(self, block: KVCacheBlock) -> None:
        """Forget its rank."""
        self._ranked.discard(block)

    def victim(self) -> KVCacheBlock:
        """The lowest."""
        block, rank = self._ranked.pop()
        self.left(block, rank)
        return block

    def order(self) -> list[KVCacheBlock]:
        """By rank."""
        return self._ranked.order()
