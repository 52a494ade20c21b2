"""Leaf LRU: the least recently used among blocks without cached children, as radix caches evict.

Zheng and others, "SGLang: efficient execution of structured language model programs", NeurIPS 2024
(RadixAttention).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sim.core.block import BlockKey, KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext
from sim.eviction.ranked import RankedBlocks


class LeafLru(EvictionPolicy):
    """Two LRU queues: leaves, and blocks that become leaves when their children go.

    When every free block has a cached child (the child is in use, or the same content sits in several blocks), the
    least recently used of them goes.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        super().__init__(blocks, context)
        self._clock = count()
        self._leaves = RankedBlocks()
        self._inner = RankedBlocks()
        self._since: dict[int, int] = {}
        self._key: dict[int, BlockKey | None] = {}
        self._parent: dict[int, BlockKey | None] = {}
        self._children: dict[BlockKey | None, int] = {}
        self._free: dict[BlockKey | None, list[KVCacheBlock]] = {}

    def add(self, block: KVCacheBlock) -> None:
        """As the most recent of its kind."""
        key = self.view.key(block)
        self._since[block.block_id] = next(self._clock)
        self._key[block.block_id] = key
        self._free.setdefault(key, []).append(block)
        self._place(block)

    def cached(self, block: KVCacheBlock) -> None:
        """Its parent is no leaf any more."""
        parent = self.view.parent_key(block)
        self._parent[block.block_id] = parent
        self._children[parent] = self._children.get(parent, 0) + 1
        self._place_again(parent)

    def on_evicted(self, block: KVCacheBlock) -> None:
        """Its parent may be a leaf now, if the block was not among the victims, which are dealt with already."""
        self._orphan(block)

    def discard(self, block: KVCacheBlock) -> None:
        """From wherever it is."""
        self._forget(block)
        if not self._leaves.discard(block):
            self._inner.discard(block)

    def victim(self) -> KVCacheBlock:
        """The oldest leaf."""
        if len(self._leaves):
            block, _ = self._leaves.pop()
        else:
            block, _ = self._inner.pop()
        self._forget(block)
        # several victims are asked for at once, before the pool tells of their eviction
        self._orphan(block)
        return block

    def order(self) -> list[KVCacheBlock]:
        """Leaves, then the others, each by age: parents that become leaves on the way are not foreseen."""
        return self._leaves.order() + self._inner.order()

    def _place(self, block: KVCacheBlock) -> None:
        queue = self._inner if self._children.get(self._key[block.block_id]) else self._leaves
        queue.add(block, self._since[block.block_id])

    def _place_again(self, key: BlockKey | None) -> None:
        if key is None:
            return
        for block in self._free.get(key, ()):
            if not self._leaves.discard(block):
                self._inner.discard(block)
            self._place(block)

    def _orphan(self, block: KVCacheBlock) -> None:
        """A block goes; its parent, as old as it is, may be a leaf now."""
        if block.block_id in self._parent:
            parent = self._parent.pop(block.block_id)
            self._children[parent] -= 1
            if not self._children[parent]:
                del self._children[parent]
                self._place_again(parent)

    def _forget(self, block: KVCacheBlock) -> None:
        key = self._key.pop(block.block_id)
        same = self._free[key]
        same.remove(block)
        if not same:
            del self._free[key]
