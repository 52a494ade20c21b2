"""GreedyDual-Size-Frequency: keeps what is used often and expensive to compute again.

Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy", HP Labs
HPL-98-69, 1998.  All blocks are equally large; the cost is that of prefilling a block at its depth.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import PolicyContext, RankedPolicy


class Gdsf(RankedPolicy):
    """Rank: age + uses × cost, where cost = 1 + depth / `attention_blocks`.

    The linear layers cost the same at every depth, attention grows with what lies before the block.

    Args:
        attention_blocks: depth in blocks at which attention costs as much as all the rest.
    """

    def __init__(
        self, blocks: Sequence[KVCacheBlock], context: PolicyContext, *, attention_blocks: float = 1024.0
    ) -> None:
        super().__init__(blocks, context)
        if attention_blocks <= 0:
            raise ValueError(f"attention_blocks is {attention_blocks}; it must be above 0")
        self._attention_blocks = attention_blocks
        self._age = 0.0

    def rank(self, block: KVCacheBlock) -> float:
        """What would be lost with it."""
        cost = 1.0 + self.view.depth(block) / self._attention_blocks
        return self._age + (self.view.hits(block) + 1) * cost

    def left(self, block: KVCacheBlock, rank: float) -> None:
        """The cache is now as old as its victim."""
        self._age = rank
