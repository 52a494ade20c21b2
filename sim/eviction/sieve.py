"""SIEVE: a hand moves over a FIFO queue, spares blocks that were hit since it last passed, and evicts the others.

Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU: an efficient turn-key eviction
algorithm for Web caches", NSDI 2024.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext


class Sieve(EvictionPolicy):
    """One queue of all cached blocks, in the order in which they were cached, and the hand's place in it.

    Blocks in use keep their place; the hand passes over them.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        super().__init__(blocks, context)
        # a ring through block ids, oldest to newest, with -1 between the newest and the oldest
        self._newer = {-1: -1}
        self._older = {-1: -1}
        self._hand = -1
        self._visited: set[int] = set()
        self._free: dict[int, KVCacheBlock] = {}

    def cached(self, block: KVCacheBlock) -> None:
        """Into the queue as its newest."""
        newest = self._older[-1]
        self._newer[newest] = self._older[-1] = block.block_id
        self._newer[block.block_id], self._older[block.block_id] = -1, newest
        self._visited.discard(block.block_id)

    def hit(self, block: KVCacheBlock) -> None:
        """The hand will spare it once."""
        self._visited.add(block.block_id)

    def on_evicted(self, block: KVCacheBlock) -> None:
        """Out of the queue; a hand that points at it falls back to the next older."""
        newer, older = self._newer.pop(block.block_id), self._older.pop(block.block_id)
        self._newer[older], self._older[newer] = newer, older
        if self._hand == block.block_id:
            self._hand = older

    def add(self, block: KVCacheBlock) -> None:
        """It may be evicted."""
        self._free[block.block_id] = block

    def discard(self, block: KVCacheBlock) -> None:
        """It may not be evicted now."""
        del self._free[block.block_id]

    def victim(self) -> KVCacheBlock:
        """Move the hand to the next block that is free and was not hit.  At most two rounds."""
        while True:
            self._hand = self._newer[self._hand]
            if self._hand not in self._free:
                continue
            if self._hand not in self._visited:
                return self._free.pop(self._hand)
            self._visited.discard(self._hand)

    def order(self) -> list[KVCacheBlock]:
        """From the hand on, those not hit first, then those that were."""
        ring = [block_id for block_id in self._from_hand() if block_id in self._free]
        spared = [block_id for block_id in ring if block_id in self._visited]
        at_once = [block_id for block_id in ring if block_id not in self._visited]
        return [self._free[block_id] for block_id in at_once + spared]

    def _from_hand(self) -> Iterator[int]:
        at = self._newer[self._hand]
        for _ in range(len(self._newer)):
            yield at
            at = self._newer[at]
