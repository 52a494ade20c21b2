"""Length-aware: fewest uses first, among equals the block deepest in its chain.

Qin and others, "Mooncake: trading more storage for less computation", FAST 2025 (LengthAwareCache: as
LFU, but blocks that come later in requests go first).
"""

from __future__ import annotations

from sim.core.block import KVCacheBlock
from sim.eviction.base import RankedPolicy


class LengthAware(RankedPolicy):
    """Rank: uses since it was cached, then minus its depth."""

    def rank(self, block: KVCacheBlock) -> tuple[int, int]:
        """(uses, −depth)."""
        return self.view.hits(block), -self.view.depth(block)
