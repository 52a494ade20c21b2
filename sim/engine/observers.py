"""Several observers of one pool."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock
from sim.core.block_pool import PoolObserver
from sim.core.request import Request


class Observers(PoolObserver):
    """Passes everything on to each of `parts`, in their order."""

    def __init__(self, parts: Sequence[PoolObserver]) -> None:
        self._parts = tuple(parts)

    def serving(self, request: Request) -> None:
        """See `PoolObserver`."""
        for part in self._parts:
            part.serving(request)

    def allocated(self, blocks: Sequence[KVCacheBlock]) -> None:
        """See `PoolObserver`."""
        for part in self._parts:
            part.allocated(blocks)

    def evicted(self, block: KVCacheBlock) -> None:
        """See `PoolObserver`."""
        for part in self._parts:
            part.evicted(block)

    def hit(self, blocks: Sequence[KVCacheBlock]) -> None:
        """See `PoolObserver`."""
        for part in self._parts:
            part.hit(blocks)

    def cached(self, request: Request, blocks: Sequence[KVCacheBlock], first_index: int, block_size: int) -> None:
        """See `PoolObserver`."""
        for part in self._parts:
            part.cached(request, blocks, first_index, block_size)

    def releasing(self, blocks: Sequence[KVCacheBlock]) -> None:
        """See `PoolObserver`."""
        for part in self._parts:
            part.releasing(blocks)

    def cleared(self) -> None:
        """See `PoolObserver`."""
        for part in self._parts:
            part.cleared()
