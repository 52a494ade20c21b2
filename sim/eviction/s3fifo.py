"""S3-FIFO: a small FIFO queue sorts out what is wanted only once, before it gets into the main one.

Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

from sim.core.block import BlockKey, KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext
from sim.eviction.ranked import RankedBlocks

_MOST_HITS = 3


class S3Fifo(EvictionPolicy):
    """Queues small, main and ghost.  A block keeps its place while it is in use.

    Args:
        small_share: the small queue's part of the pool.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext, *, small_share: float = 0.1) -> None:
        super().__init__(blocks, context)
        if not 0 < small_share < 1:
            raise ValueError(f"small_share is {small_share}; it must be between 0 and 1")
        self._small_room = max(1, int(small_share * self.capacity))
        self._ghost_room = max(1, self.capacity - self._small_room)
        self._numbers = count()
        self._small = RankedBlocks()
        self._main = RankedBlocks()
        self._place: dict[int, int] = {}
        self._in_main: set[int] = set()
        self._hits: dict[int, int] = {}
        self._ghost: OrderedDict[BlockKey, None] = OrderedDict()

    def cached(self, block: KVCacheBlock) -> None:
        """Into the small queue; into the main one if the ghost queue remembers it."""
        key = self.view.key(block)
        self._place[block.block_id] = next(self._numbers)
        self._hits[block.block_id] = 0
        self._in_main.discard(block.block_id)
        if key is not None and key in self._ghost:
            del self._ghost[key]
            self._in_main.add(block.block_id)

    def hit(self, block: KVCacheBlock) -> None:
        """Counted up to three."""
        self._hits[block.block_id] = min(_MOST_HITS, self._hits[block.block_id] + 1)

    def on_evicted(self, block: KVCacheBlock) -> None:
        """The ghost queue remembers what left the small one."""
        key = self.view.key(block)
        if key is not None and block.block_id not in self._in_main:
            self._ghost[key] = None
            self._ghost.move_to_end(key)
            if len(self._ghost) > self._ghost_room:
                self._ghost.popitem(last=False)

    def add(self, block: KVCacheBlock) -> None:
        """Back to its place."""
        queue = self._main if block.block_id in self._in_main else self._small
        queue.add(block, self._place[block.block_id])

    def discard(self, block: KVCacheBlock) -> None:
        """From wherever it is."""
        if not self._small.discard(block):
            self._main.discard(block)

    def victim(self) -> KVCacheBlock:
        """The oldest of the small queue hit less than twice, or of the main queue not hit since it last came up."""
        while True:
            if len(self._small) and (len(self._small) > self._small_room or not len(self._main)):
                block, _ = self._small.pop()
                if self._hits[block.block_id] < 2:
                    return block
                self._in_main.add(block.block_id)
                self._hits[block.block_id] = 0
            else:
                block, _ = self._main.pop()
                if not self._hits[block.block_id]:
                    return block
                self._hits[block.block_id] -= 1
            self._place[block.block_id] = next(self._numbers)
            self._main.add(block, self._place[block.block_id])

    def order(self) -> list[KVCacheBlock]:
        """The small queue's surplus, the main queue, the rest of the small one; second chances are not foreseen."""
        small = self._small.order()
        surplus = max(0, len(small) - self._small_room)
        return small[:surplus] + self._main.order() + small[surplus:]
