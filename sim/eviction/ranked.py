"""Blocks in the order of a rank, from which any can be taken."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from sim.core.block import KVCacheBlock


class _Entry(NamedTuple):
    rank: Any
    turn: int
    block: KVCacheBlock


class RankedBlocks:
    """A priority queue of blocks: lowest rank first, among equals the one added first.

    A heap from which blocks leave lazily: adding and taking cost O(log n), discarding O(1); what was discarded is
    swept out when it outnumbers what is there.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._heap: list[_Entry] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, block: KVCacheBlock) -> bool:
        return block.block_id in self._entries

    def add(self, block: KVCacheBlock, rank: Any) -> None:
        """Take a block in, which must not be there."""
        self._turn += 1
        entry = _Entry(rank, self._turn, block)
        self._entries[block.block_id] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def discard(self, block: KVCacheBlock) -> bool:
        """Take a block out; whether it was there."""
        return self._entries.pop(block.block_id, None) is not None

    def first(self) -> tuple[KVCacheBlock, Any]:
        """The lowest block and its rank.  Raises `IndexError` when there is none."""
        heap = self._heap
        while self._entries.get(heap[0].block.block_id) is not heap[0]:
            heappop(heap)
        return heap[0].block, heap[0].rank

    def pop(self) -> tuple[KVCacheBlock, Any]:
        """Take the lowest block out; it and its rank.  Raises `IndexError` when there is none."""
        block, rank = self.first()
        heappop(self._heap)
        del self._entries[block.block_id]
        return block, rank

    def order(self) -> list[KVCacheBlock]:
        """All blocks, lowest first."""
        return [entry.block for entry in sorted(self._entries.values(), key=lambda entry: entry[:2])]
