"""First in, first out: the block that was cached first goes first, however often it was hit.

Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sim.core.block import KVCacheBlock
from sim.eviction.base import PolicyContext, RankedPolicy


class Fifo(RankedPolicy):
    """Rank: the number under which the block was cached."""

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        super().__init__(blocks, context)
        self._numbers = count()
        self._came_in: dict[int, int] = {}

    def cached(self, block: KVCacheBlock) -> None:
        """It comes in behind all others."""
        self._came_in[block.block_id] = next(self._numbers)

    def rank(self, block: KVCacheBlock) -> int:
        """Its number, which hits do not change."""
        return self._came_in[block.block_id]
