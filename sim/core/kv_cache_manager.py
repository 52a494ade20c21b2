"""The cache manager: prefix lookup and block allocation for requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from sim.core.block import KVCacheBlock
from sim.core.block_pool import BlockPool, FreeQueue, PoolObserver
from sim.core.cache_groups import KVCacheGroup
from sim.core.coordinator import GroupBlocks, KVCacheCoordinator
from sim.core.events import KVCacheEvent
from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.core.request import Request
from sim.errors import InvariantError


class KVCacheManager:
    """Decides which blocks a request gets.

    Args:
        num_gpu_blocks: blocks of the pool, the null block included.
        groups: the KV-cache groups, at least one.
        max_model_len: tokens.
        enable_caching: prefix caching on or off.
        enable_kv_cache_events: collect events.
        retention_interval: see `SlidingWindowManager`.
        max_admission_tokens: see `SlidingWindowManager`.
        free_queue, observer: see `BlockPool`.
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        groups: Sequence[KVCacheGroup],
        max_model_len: int,
        *,
        enable_caching: bool = True,
        enable_kv_cache_events: bool = False,
        retention_interval: int | None = None,
        max_admission_tokens: int = 0,
        free_queue: Callable[[list[KVCacheBlock]], FreeQueue] = FreeKVCacheBlockQueue,
        observer: PoolObserver | None = None,
    ) -> None:
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.block_pool = BlockPool(num_gpu_blocks, enable_caching, enable_kv_cache_events, free_queue, observer)
        self.coordinator = KVCacheCoordinator(
            groups, self.block_pool, max_model_len, max_admission_tokens, retention_interval
        )
        self.no_blocks: GroupBlocks = tuple([] for _ in groups)
        self._observer = observer

    @property
    def usage(self) -> float:
        """Share of blocks in use."""
        return self.block_pool.get_usage()

    def get_computed_blocks(self, request: Request) -> tuple[GroupBlocks, int]:
        """The request's cached prefix: blocks of each group, and its length in tokens.

        At least one token is always left to compute.  Nothing is taken or held.
        """
        if not self.enable_caching:
            return self.no_blocks, 0
        return self.coordinator.find_longest_cache_hit(request, request.num_tokens - 1)

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: GroupBlocks | None = None,
        *,
        full_sequence_must_fit: bool = False,
        watermark_blocks: int = 0,
    ) -> GroupBlocks | None:
        """Give the request slots for `num_new_tokens` more tokens.

        ::

            | num_computed_tokens | num_new_computed_tokens | num_new_tokens |
            |        owned        |   hit (held by this)    |      new       |

        Args:
            request: the request.
            num_new_tokens: tokens to compute, > 0.
            num_new_computed_tokens: length of the hit, tokens.
            new_computed_blocks: blocks of the hit, as `get_computed_blocks` gave them.
            full_sequence_must_fit: refuse unless all known tokens fit at once.
            watermark_blocks: blocks that must stay free.

        Returns:
            The new blocks of each group, without the hits; None when they do not fit: then no block
            was taken or held.

        Raises:
            ValueError: `num_new_tokens` is not positive.
        """
        if num_new_tokens <= 0:
            raise ValueError(f"request {request.request_id}: num_new_tokens must be positive, got {num_new_tokens}")
        hits = new_computed_blocks or self.no_blocks
        request_id = request.request_id
        computed = request.num_computed_tokens + num_new_computed_tokens
        free = self.block_pool.get_num_free_blocks
        if full_sequence_must_fit:
            needed = self.coordinator.get_num_blocks_to_allocate(request_id, request.num_tokens, hits, capped=True)
            if needed + watermark_blocks > free():
                return None
        self.coordinator.remove_skipped_blocks(request_id, computed - request.num_inflight_tokens)
        num_tokens = min(computed + num_new_tokens, self.max_model_len)
        needed = self.coordinator.get_num_blocks_to_allocate(request_id, num_tokens, hits)
        if needed + watermark_blocks > free():
            return None
        if self._observer is not None:
            self._observer.serving(request)
        self.coordinator.add_computed_blocks(request_id, hits)
        new_blocks = self.coordinator.allocate_new_blocks(request_id, num_tokens)
        if self.enable_caching:
            self.cache_blocks(request, min(computed + num_new_tokens, request.num_tokens))
        return new_blocks

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Make the blocks that the first `num_tokens` tokens fill visible to others."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_tokens)

    def free(self, request: Request) -> None:
        """Let go of all the request's blocks."""
        self.coordinator.free(request.request_id)

    def mark_phantom(self, request: Request, start_tokens: int, stop_tokens: int) -> None:
        """The tokens ``start … stop - 1`` will not be computed after all, though their full blocks have keys.

        Called before the blocks are freed; `PhantomHits` of the scheduler counts hits on them.
        """
        for manager in self.coordinator.managers:
            table = manager.req_to_blocks.get(request.request_id, [])
            for block in table[start_tokens // manager.block_size : manager.blocks_for(stop_tokens)]:
                if block.block_hash is not None and block.num_hashed_tokens > start_tokens:
                    block.is_phantom = True

    def reset_prefix_cache(self) -> bool:
        """Drop every key unless blocks are in use; says whether it did."""
        return self.block_pool.reset_prefix_cache()

    def evict_blocks(self, block_ids: Sequence[int]) -> None:
        """Drop the keys of these blocks."""
        self.block_pool.evict_blocks(block_ids)

    def take_events(self) -> list[KVCacheEvent]:
        """Events since the last call."""
        return self.block_pool.take_events()

    def check(self) -> None:
        """Raise `InvariantError` unless tables, references and pool agree."""
        self.block_pool.check()
        self.coordinator.check()
        held: Counter[int] = Counter()
        for manager in self.coordinator.managers:
            for table in manager.req_to_blocks.values():
                held.update(block.block_id for block in table if not block.is_null)
        for block in self.block_pool.blocks:
            if block.ref_cnt != held[block.block_id]:
                raise InvariantError(f"law 2: {block} is in {held[block.block_id]} tables")
