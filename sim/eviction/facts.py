"""What is known of each cached block, and the window through which an eviction policy sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sim.core.block import BlockHash, BlockKey, KVCacheBlock, key_group_id, make_block_key
from sim.core.block_pool import PoolObserver
from sim.eviction.origin import Origin as Origin

if TYPE_CHECKING:
    from sim.core.request import Request
    from sim.eviction.base import EvictionPolicy


class BlockFacts:
    """Facts of one block while it is cached.  Times are the clock's, sizes tokens."""

    __slots__ = ("allocated_at", "depth", "hits", "key", "last_used_at", "origin", "parent_key", "size_tokens")

    def __init__(self) -> None:
        self.key: BlockKey | None = None
        self.parent_key: BlockKey | None = None
        self.depth = 0
        self.hits = 0
        self.allocated_at = 0.0
        self.last_used_at = 0.0
        self.origin = Origin()
        self.size_tokens = 0


class BlockView:
    """Read-only facts of cached blocks.  Nothing here tells the future.

    Every method takes a block.  Of a block without a key the facts mean nothing, except `allocated_at`.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: BlockLedger) -> None:
        self._ledger = ledger

    @property
    def now(self) -> float:
        """The time: simulated seconds, or the number of the request where there is no clock."""
        return self._ledger.clock()

    def key(self, block: KVCacheBlock) -> BlockKey | None:
        """The key under which it is cached; equal keys mean equal content, prefix included."""
        return self._ledger.facts[block.block_id].key

    def parent_key(self, block: KVCacheBlock) -> BlockKey | None:
        """The key of the block before it in its chain, None for a chain's first."""
        return self._ledger.facts[block.block_id].parent_key

    def depth(self, block: KVCacheBlock) -> int:
        """Its place in its chain, from 0."""
        return self._ledger.facts[block.block_id].depth

    def has_cached_children(self, block: KVCacheBlock) -> bool:
        """Whether a block that continues it is cached."""
        key = self._ledger.facts[block.block_id].key
        return key is not None and self._ledger.children.get(key, 0) > 0

    def hits(self, block: KVCacheBlock) -> int:
        """How often it was hit since it was cached."""
        return self._ledger.facts[block.block_id].hits

    def allocated_at(self, block: KVCacheBlock) -> float:
        """When it was taken for its content."""
        return self._ledger.facts[block.block_id].allocated_at

    def last_used_at(self, block: KVCacheBlock) -> float:
        """When it was last hit or let go."""
        return self._ledger.facts[block.block_id].last_used_at

    def category(self, block: KVCacheBlock) -> str:
        """Category of the request that used it last."""
        return self._ledger.facts[block.block_id].origin.category

    def session(self, block: KVCacheBlock) -> str | None:
        """Session of the request that used it last."""
        return self._ledger.facts[block.block_id].origin.session

    def turn(self, block: KVCacheBlock) -> int:
        """Turn, from 0, of the request that used it last."""
        return self._ledger.facts[block.block_id].origin.turn

    def size_tokens(self, block: KVCacheBlock) -> int:
        """Tokens that it holds."""
        return self._ledger.facts[block.block_id].size_tokens


class BlockLedger(PoolObserver):
    """Keeps the facts, as an observer of the pool, and passes the news on to the policy.

    Args:
        num_blocks: blocks of the pool, the null block included.
        clock: gives the time.
        hash_block_size: tokens of one entry of a request's `block_hashes`.
        origin_of: who sent a request.
    """

    def __init__(
        self,
        num_blocks: int,
        clock: Callable[[], float],
        hash_block_size: int,
        origin_of: Callable[[Request], Origin] = lambda request: Origin(),
    ) -> None:
        self.clock = clock
        self.facts = [BlockFacts() for _ in range(num_blocks)]
        self.children: dict[BlockKey, int] = {}
        self.policy: EvictionPolicy | None = None
        self._hash_block_size = hash_block_size
        self._origin_of = origin_of
        self._origin = Origin()

    def serving(self, request: Request) -> None:
        """Facts change on behalf of this request from now on."""
        self._origin = self._origin_of(request)
        if self.policy is not None:
            self.policy.serving(request.index)

    def allocated(self, blocks: Sequence[KVCacheBlock]) -> None:
        """A new life begins."""
        now = self.clock()
        for block in blocks:
            self.facts[block.block_id].allocated_at = now

    def cached(self, request: Request, blocks: Sequence[KVCacheBlock], first_index: int, block_size: int) -> None:
        """Blocks have keys now."""
        now = self.clock()
        hashes = request.block_hashes
        ratio = block_size // self._hash_block_size
        for index, block in enumerate(blocks, first_index):
            key = block.block_hash
            facts = self.facts[block.block_id]
            if block.is_null or key is None or facts.key is not None:
                continue
            parent = _parent(hashes, index * ratio, key)
            facts.key, facts.parent_key = key, parent
            facts.depth, facts.hits, facts.size_tokens = index, 0, block_size
            facts.last_used_at, facts.origin = now, self._origin
            if parent is not None:
                self.children[parent] = self.children.get(parent, 0) + 1
            if self.policy is not None:
                self.policy.cached(block)

    def hit(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Blocks were used again."""
        now = self.clock()
        for block in blocks:
            facts = self.facts[block.block_id]
            facts.hits += 1
            facts.last_used_at, facts.origin = now, self._origin
            if self.policy is not None:
                self.policy.hit(block)

    def releasing(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Blocks were used until now."""
        now = self.clock()
        for block in blocks:
            self.facts[block.block_id].last_used_at = now

    def evicted(self, block: KVCacheBlock) -> None:
        """A block loses its key; the policy hears of it while the facts still stand."""
        facts = self.facts[block.block_id]
        if facts.key is None:
            return
        parent = facts.parent_key
        if parent is not None:
            left = self.children[parent] - 1
            if left:
                self.children[parent] = left
            else:
                del self.children[parent]
        if self.policy is not None:
            self.policy.evicted(block)
        facts.key = facts.parent_key = None

    def cleared(self) -> None:
        """All blocks lose their keys."""
        if self.policy is not None:
            self.policy.cleared()
        for facts in self.facts:
            facts.key = facts.parent_key = None
        self.children.clear()


def _parent(hashes: Sequence[BlockHash], end: int, key: BlockKey) -> BlockKey | None:
    """Key, in the group of `key`, of the block that ends before entry `end` of the hashes."""
    return make_block_key(hashes[end - 1], key_group_id(key)) if end else None
