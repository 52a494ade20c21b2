"""Pinned prefixes: heads of chains that have proved popular, and named categories, go only when nothing else is left.

Operators pin system prompts this way; within both kinds the order is LRU.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext
from sim.eviction.ranked import RankedBlocks


class Pinned(EvictionPolicy):
    """Two LRU queues, pinned blocks in the second; what it has no room for goes back to the first.

    Args:
        first_blocks: how many blocks from a chain's start can be pinned.
        min_hits: hits that pin such a block.
        categories: their blocks are pinned from the start, at any depth.
        share: the most of the pool that is pinned, from 0 to 1.
    """

    def __init__(
        self,
        blocks: Sequence[KVCacheBlock],
        context: PolicyContext,
        *,
        first_blocks: int = 64,
        min_hits: int = 2,
        categories: Sequence[str] = (),
        share: float = 0.5,
    ) -> None:
        super().__init__(blocks, context)
        if first_blocks < 0 or min_hits < 0 or not 0 <= share <= 1:
            raise ValueError("first_blocks and min_hits must be at least 0, and share from 0 to 1")
        self._first_blocks = first_blocks
        self._min_hits = min_hits
        self._categories = frozenset(categories)
        self._room = int(share * self.capacity)
        self._others = RankedBlocks()
        self._pinned = RankedBlocks()

    def is_pinned(self, block: KVCacheBlock) -> bool:
        """Whether a block that comes in now is pinned."""
        if self.view.category(block) in self._categories:
            return True
        return self.view.depth(block) < self._first_blocks and self.view.hits(block) >= self._min_hits

    def add(self, block: KVCacheBlock) -> None:
        """To the recent end of its queue."""
        if not self.is_pinned(block):
            self._others.add(block, 0)
            return
        self._pinned.add(block, 0)
        while len(self._pinned) > self._room:
            released, _ = self._pinned.pop()
            self._others.add(released, 0)

    def discard(self, block: KVCacheBlock) -> None:
        """From wherever it is."""
        if not self._others.discard(block):
            self._pinned.discard(block)

    def victim(self) -> KVCacheBlock:
        """Not pinned, if there is one."""
        return (self._others if len(self._others) else self._pinned).pop()[0]

    def order(self) -> list[KVCacheBlock]:
        """The pinned ones last."""
        return self._others.order() + self._pinned.order()
