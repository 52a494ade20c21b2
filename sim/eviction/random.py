"""Random replacement: every block is as likely to go as any other."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import PolicyContext, RankedPolicy


class Random(RankedPolicy):
    """Rank: a fresh draw from the policy's own generator whenever the block comes in."""

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        super().__init__(blocks, context)
        self._rng = context.rng

    def rank(self, block: KVCacheBlock) -> float:
        """A number between 0 and 1."""
        return float(self._rng.random())
