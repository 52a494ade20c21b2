"""ARC: shares the cache between blocks seen once and seen again, and corrects the share by its own mistakes.

Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from sim.core.block import BlockKey, KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext
from sim.eviction.ranked import RankedBlocks

Ghosts = OrderedDict[BlockKey, None]


class Arc(EvictionPolicy):
    """The queues T1, T2 (blocks) and B1, B2 (keys of what left them), and the target size of T1.

    T1 and T2 hold free blocks only, so a block in use counts towards neither until it is back.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        super().__init__(blocks, context)
        self.target = 0.0
        self._once = RankedBlocks()
        self._again = RankedBlocks()
        self._frequent: set[int] = set()
        self._once_ghosts: Ghosts = OrderedDict()
        self._again_ghosts: Ghosts = OrderedDict()

    def cached(self, block: KVCacheBlock) -> None:
        """Content that a ghost list remembers was evicted too early: its list gets more room."""
        key = self.view.key(block)
        once, again = len(self._once_ghosts), len(self._again_ghosts)
        if key is not None and key in self._once_ghosts:
            self.target = min(self.capacity, self.target + max(1.0, again / once))
            del self._once_ghosts[key]
        elif key is not None and key in self._again_ghosts:
            self.target = max(0.0, self.target - max(1.0, once / again))
            del self._again_ghosts[key]
        else:
            self._frequent.discard(block.block_id)
            return
        self._frequent.add(block.block_id)

    def hit(self, block: KVCacheBlock) -> None:
        """Seen again."""
        self._frequent.add(block.block_id)

    def on_evicted(self, block: KVCacheBlock) -> None:
        """Its key is remembered, within the bounds of the paper: T1 + B1 ≤ c, all together ≤ 2c."""
        key = self.view.key(block)
        if key is None:
            return
        ghosts = self._again_ghosts if block.block_id in self._frequent else self._once_ghosts
        ghosts[key] = None
        ghosts.move_to_end(key)
        if len(self._once) + len(self._once_ghosts) > self.capacity and self._once_ghosts:
            self._once_ghosts.popitem(last=False)
        if self.num_free_blocks + len(self._once_ghosts) + len(self._again_ghosts) > 2 * self.capacity:
            (self._again_ghosts or self._once_ghosts).popitem(last=False)

    def add(self, block: KVCacheBlock) -> None:
        """To the recent end of T1 or T2."""
        (self._again if block.block_id in self._frequent else self._once).add(block, 0)

    def discard(self, block: KVCacheBlock) -> None:
        """From wherever it is."""
        if not self._once.discard(block):
            self._again.discard(block)

    def victim(self) -> KVCacheBlock:
        """From T1 while it is above its target."""
        from_once = len(self._once) > self.target or not len(self._again)
        return (self._once if from_once and len(self._once) else self._again).pop()[0]

    def order(self) -> list[KVCacheBlock]:
        """T1's surplus, then T2, then the rest of T1."""
        once = self._once.order()
        surplus = max(0, len(once) - int(self.target))
        return once[:surplus] + self._again.order() + once[surplus:]
