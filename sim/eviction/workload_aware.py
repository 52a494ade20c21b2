"""Workload-aware: the block least likely to be used again soon goes first, as its category and turn behave.

Wang and others, "KVCache cache in the wild: characterizing and optimizing KVCache cache at a large cloud
provider", USENIX ATC 2025 (the Bailian study): within a category the time until reuse is close to
exponential, and categories and turns differ widely; among equals the block deeper in its chain goes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import EvictionPolicy, PolicyContext
from sim.eviction.ranked import RankedBlocks

Kind = tuple[str, int]


class _Reuse:
    """What has been seen of one kind of block."""

    __slots__ = ("blocks", "hits", "waited")

    def __init__(self) -> None:
        self.blocks = 0
        self.hits = 0
        self.waited = 0.0


class WorkloadAware(EvictionPolicy):
    """An LRU queue per (category, turn); the victim is the head with the smallest chance of reuse.

    The chance that a block idle for t is used within the next `horizon`: p · (e^(−t/τ) − e^(−(t+horizon)/τ)), where p
    is the share of the kind's uses that were followed by another and τ their mean wait, both learnt on the way and
    started from `prior_hits` among `prior_uses`.

    Args:
        horizon_s: how far ahead, in the clock's unit; the mean time for which evicted blocks had been idle if None.
        most_turns: later turns count as this one.
        prior_uses, prior_hits: what a kind is believed to do before anything is seen of it.
    """

    def __init__(
        self,
        blocks: Sequence[KVCacheBlock],
        context: PolicyContext,
        *,
        horizon_s: float | None = None,
        most_turns: int = 8,
        prior_uses: float = 10.0,
        prior_hits: float = 5.0,
    ) -> None:
        super().__init__(blocks, context)
        if most_turns < 1 or not 0 < prior_hits <= prior_uses or (horizon_s is not None and horizon_s <= 0):
            raise ValueError("most_turns must be at least 1, horizon_s above 0, and prior_hits in (0, prior_uses]")
        self._horizon = horizon_s
        self._most_turns = most_turns
        self._prior = (prior_uses, prior_hits)
        self._reuse: dict[Kind, _Reuse] = {}
        self._queues: dict[Kind, RankedBlocks] = {}
        self._kind: dict[int, Kind] = {}
        self._used_at: dict[int, float] = {}
        self._idle_evicted = (0, 0.0)

    def cached(self, block: KVCacheBlock) -> None:
        """A use of its kind."""
        self._use(block)

    def hit(self, block: KVCacheBlock) -> None:
        """A reuse of the kind that it was, and a use of the kind that it is now."""
        before = self._reuse[self._kind[block.block_id]]
        before.hits += 1
        before.waited += max(0.0, self.view.now - self._used_at[block.block_id])
        self._use(block)

    def on_evicted(self, block: KVCacheBlock) -> None:
        """How long blocks sit idle before they go is how far ahead it is worth looking."""
        count, idle = self._idle_evicted
        self._idle_evicted = (count + 1, idle + max(0.0, self.view.now - self._used_at[block.block_id]))

    def chance(self, block: KVCacheBlock) -> float:
        """The chance that this block is used again within the horizon."""
        seen = self._reuse[self._kind[block.block_id]]
        uses, hits = self._prior
        share = (seen.hits + hits) / (seen.blocks + uses)
        horizon = self._horizon_now()
        mean = (seen.waited + hits * horizon) / (seen.hits + hits)
        idle = max(0.0, self.view.now - self._used_at[block.block_id])
        return share * (math.exp(-idle / mean) - math.exp(-(idle + horizon) / mean))

    def add(self, block: KVCacheBlock) -> None:
        """To the recent end of its kind's queue."""
        self._used_at[block.block_id] = self.view.now
        self._queues.setdefault(self._kind[block.block_id], RankedBlocks()).add(block, 0)

    def discard(self, block: KVCacheBlock) -> None:
        """From its kind's queue."""
        self._queues[self._kind[block.block_id]].discard(block)

    def victim(self) -> KVCacheBlock:
        """The head with the smallest chance; among equals the deepest, then the kind first seen."""
        heads = [(queue, queue.first()[0]) for queue in self._queues.values() if len(queue)]
        queue, _ = min(heads, key=lambda pair: (self.chance(pair[1]), -self.view.depth(pair[1])))
        return queue.pop()[0]

    def order(self) -> list[KVCacheBlock]:
        """By the chance as it is now; within a kind by age."""
        blocks = [block for queue in self._queues.values() for block in queue.order()]
        return sorted(blocks, key=lambda block: (self.chance(block), -self.view.depth(block)))

    def _use(self, block: KVCacheBlock) -> None:
        kind = (self.view.category(block), min(self.view.turn(block), self._most_turns))
        self._kind[block.block_id] = kind
        self._used_at[block.block_id] = self.view.now
        self._reuse.setdefault(kind, _Reuse()).blocks += 1

    def _horizon_now(self) -> float:
        if self._horizon is not None:
            return self._horizon
        count, idle = self._idle_evicted
        return max(idle / count, 1e-9) if idle else 1.0
