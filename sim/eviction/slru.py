"""Segmented LRU: blocks hit at least once live in a protected segment, the others on probation.

Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE Computer 27(3), 1994.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext
from sim.eviction.ranked import RankedBlocks


class Slru(EvictionPolicy):
    """Two LRU queues.  What the protected one has no room for goes back on probation, as its most recent.

    Args:
        protected_share: the protected segment's part of the pool, between 0 and 1.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext, *, protected_share: float = 0.8) -> None:
        super().__init__(blocks, context)
        if not 0 <= protected_share <= 1:
            raise ValueError(f"protected_share is {protected_share}; it must be from 0 to 1")
        self._room = int(protected_share * self.capacity)
        self._probation = RankedBlocks()
        self._protected = RankedBlocks()

    def add(self, block: KVCacheBlock) -> None:
        """To the segment that its hits earn it."""
        if not self.view.hits(block):
            self._probation.add(block, 0)
            return
        self._protected.add(block, 0)
        while len(self._protected) > self._room:
            demoted, _ = self._protected.pop()
            self._probation.add(demoted, 0)

    def discard(self, block: KVCacheBlock) -> None:
        """From wherever it is."""
        if not self._probation.discard(block):
            self._protected.discard(block)

    def victim(self) -> KVCacheBlock:
        """On probation first."""
        return (self._probation if len(self._probation) else self._protected).pop()[0]

    def order(self) -> list[KVCacheBlock]:
        """Probation, then protected."""
        return self._probation.order() + self._protected.order()
