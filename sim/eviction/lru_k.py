"""LRU-K: the block whose k-th last use is longest ago goes first; those with fewer uses before all others.

O'Neil, O'Neil, Weikum, "The LRU-K page replacement algorithm for database disk buffering", SIGMOD 1993.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from sim.core.block import BlockKey, KVCacheBlock
from sim.eviction.base import PolicyContext, RankedPolicy


class LruK(RankedPolicy):
    """Rank: the k-th last use, or none and the last use.  Uses are remembered after eviction.

    Args:
        k: which use back counts; 1 is LRU.
        history: how many keys are remembered, in shares of the pool's blocks.
    """

    def __init__(
        self, blocks: Sequence[KVCacheBlock], context: PolicyContext, *, k: int = 2, history: float = 2.0
    ) -> None:
        super().__init__(blocks, context)
        if k < 1 or history < 1:
            raise ValueError(f"k is {k} and history {history}; both must be at least 1")
        self._k = k
        self._most = max(1, int(history * self.capacity))
        self._time = 0
        self._uses: OrderedDict[BlockKey, deque[int]] = OrderedDict()

    def serving(self, request_index: int) -> None:
        """All blocks of a request are used at the same time."""
        self._time += 1

    def cached(self, block: KVCacheBlock) -> None:
        """A first use, or one more of a key that is remembered."""
        self._use(block)

    def hit(self, block: KVCacheBlock) -> None:
        """One more use."""
        self._use(block)

    def rank(self, block: KVCacheBlock) -> tuple[bool, int]:
        """(whether it has k uses, its k-th last or else its last)."""
        key = self.view.key(block)
        uses = self._uses.get(key) if key is not None else None
        if uses is None:
            return False, 0
        return (True, uses[0]) if len(uses) == self._k else (False, uses[-1])

    def _use(self, block: KVCacheBlock) -> None:
        key = self.view.key(block)
        if key is None:
            return
        self._uses.setdefault(key, deque(maxlen=self._k)).append(self._time)
        self._uses.move_to_end(key)
        if len(self._uses) > self._most:
            self._uses.popitem(last=False)
