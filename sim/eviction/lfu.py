"""Least frequently used, with dynamic aging (LFU-DA).

Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating content management techniques for Web proxy
caches", ACM SIGMETRICS Performance Evaluation Review 27(4), 2000.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import PolicyContext, RankedPolicy


class Lfu(RankedPolicy):
    """Rank: uses since it was cached, plus the age of the cache; among equals the least recently used goes first.

    The age is the rank of the last victim, so that a block that was popular long ago does not stay for ever.

    Args:
        aging: False for plain LFU.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext, *, aging: bool = True) -> None:
        super().__init__(blocks, context)
        self._aging = aging
        self._age = 0

    def rank(self, block: KVCacheBlock) -> int:
        """Age + uses; to be computed is the first use."""
        return self._age + self.view.hits(block) + 1

    def left(self, block: KVCacheBlock, rank: int) -> None:
        """The cache is now as old as its victim."""
        if self._aging:
            self._age = rank
