"""Time to live: each category's blocks are kept for so long after their last use; the first to expire goes first.

Providers bill prompt caches this way: kept for five minutes, for an hour where that is paid for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.core.block import KVCacheBlock
from sim.eviction.base import PolicyContext, RankedPolicy


class Ttl(RankedPolicy):
    """Rank: last use + time to live.  Expired blocks still hit until they are evicted, but go before all others.

    Args:
        ttl_s: time to live, in the clock's unit: simulated seconds, or requests where there is no clock.
        categories: other times for requests of these categories.
    """

    def __init__(
        self,
        blocks: Sequence[KVCacheBlock],
        context: PolicyContext,
        *,
        ttl_s: float = 300.0,
        categories: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(blocks, context)
        self._ttl = float(ttl_s)
        self._by_category = {name: float(ttl) for name, ttl in (categories or {}).items()}
        if min(self._ttl, *self._by_category.values(), self._ttl) < 0:
            raise ValueError("a time to live must be at least 0")

    def rank(self, block: KVCacheBlock) -> float:
        """When it expires."""
        return self.view.last_used_at(block) + self._by_category.get(self.view.category(block), self._ttl)
