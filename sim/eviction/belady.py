"""Belady's optimum as a free queue: the block wanted again last goes first.

Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
A bound for studies, not a policy: it sees the future.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import PolicyContext, RankedPolicy


class Belady(RankedPolicy):
    """Rank: minus the next use."""

    needs_future = True

    def __init__(self, blocks: Sequence[KVCacheBlock], context: PolicyContext) -> None:
        super().__init__(blocks, context)
        if context.future is None:
            raise ValueError("it needs a workload whose future is known")
        self._future = context.future

    def serving(self, request_index: int) -> None:
        """What this request wants is the future no more."""
        self._future.advance(request_index)

    def rank(self, block: KVCacheBlock) -> float:
        """Minus the next use; minus infinity for a block never wanted again."""
        key = self.view.key(block)
        return -self._future.next_use(key) if key is not None else float("-inf")
