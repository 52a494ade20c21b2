"""2Q: new blocks pass through a short FIFO queue; only those wanted again after it are kept by LRU.

Johnson, Shasha, "2Q: a low overhead high performance buffer management replacement algorithm", VLDB 1994.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

from sim.core.block import BlockKey, KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext
from sim.eviction.ranked import RankedBlocks


class TwoQ(EvictionPolicy):
    """The queues A1in (FIFO), A1out (keys only) and Am (LRU) of the paper.

    Args:
        in_share: A1in's part of the pool; above it, A1in gives the victims.
        out_share: how many keys A1out remembers, in shares of the pool.
    """

    def __init__(
        self,
        blocks: Sequence[KVCacheBlock],
        context: PolicyContext,
        *,
        in_share: float = 0.25,
        out_share: float = 0.5,
    ) -> None:
        super().__init__(blocks, context)
        if not 0 < in_share < 1 or out_share < 0:
            raise ValueError(f"in_share is {in_share}, out_share {out_share}; they must be in (0, 1) and at least 0")
        self._in_room = max(1, int(in_share * self.capacity))
        self._out_room = int(out_share * self.capacity)
        self._numbers = count()
        self._first = RankedBlocks()
        self._main = RankedBlocks()
        self._came_in: dict[int, int] = {}
        self._out: OrderedDict[BlockKey, None] = OrderedDict()

    def cached(self, block: KVCacheBlock) -> None:
        """New content goes to A1in, remembered content to Am."""
        key = self.view.key(block)
        if key is not None and key in self._out:
            del self._out[key]
            self._came_in.pop(block.block_id, None)
        else:
            self._came_in[block.block_id] = next(self._numbers)

    def on_evicted(self, block: KVCacheBlock) -> None:
        """A1out remembers what left A1in."""
        key = self.view.key(block)
        if self._came_in.pop(block.block_id, None) is not None and key is not None and self._out_room:
            self._out[key] = None
            self._out.move_to_end(key)
            if len(self._out) > self._out_room:
                self._out.popitem(last=False)

    def add(self, block: KVCacheBlock) -> None:
        """To its place in A1in, which hits do not change, or the recent end of Am."""
        number = self._came_in.get(block.block_id)
        if number is None:
            self._main.add(block, 0)
        else:
            self._first.add(block, number)

    def discard(self, block: KVCacheBlock) -> None:
        """From wherever it is."""
        if not self._first.discard(block):
            self._main.discard(block)

    def victim(self) -> KVCacheBlock:
        """From A1in while it is above its share."""
        from_first = len(self._first) > self._in_room or not len(self._main)
        return (self._first if from_first else self._main).pop()[0]

    def order(self) -> list[KVCacheBlock]:
        """A1in's surplus, then Am, then the rest of A1in."""
        first = self._first.order()
        surplus = max(0, len(first) - self._in_room)
        return first[:surplus] + self._main.order() + first[surplus:]
