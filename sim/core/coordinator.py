"""All groups of a model together: one hit length, and allocation group by group."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import BlockHash, KVCacheBlock
from sim.core.block_pool import BlockPool
from sim.core.cache_groups import KVCacheGroup, hash_block_size, scheduler_block_size
from sim.core.hashing import BlockHashListWithBlockSize
from sim.core.managers.base import SingleTypeKVCacheManager
from sim.core.managers.full_attention import FullAttentionManager
from sim.core.managers.sliding_window import SlidingWindowManager
from sim.core.request import Request

GroupBlocks = tuple[list[KVCacheBlock], ...]


class KVCacheCoordinator:
    """Managers of all groups over one pool.

    Args:
        groups: at least one.
        block_pool: shared by all.
        max_model_len: tokens.
        max_admission_tokens: see `SlidingWindowManager`.
        retention_interval: see `SlidingWindowManager`.
    """

    def __init__(
        self,
        groups: Sequence[KVCacheGroup],
        block_pool: BlockPool,
        max_model_len: int,
        max_admission_tokens: int,
        retention_interval: int | None,
    ) -> None:
        self.block_pool = block_pool
        self.scheduler_block_size = scheduler_block_size(groups)
        self.hash_block_size = hash_block_size(groups)
        self.managers: list[SingleTypeKVCacheManager] = []
        for group_id, group in enumerate(groups):
            if group.window is None:
                self.managers.append(
                    FullAttentionManager(
                        block_pool, group.block_size, group_id, self.scheduler_block_size, self.hash_block_size
                    )
                )
            else:
                self.managers.append(
                    SlidingWindowManager(
                        block_pool,
                        group.block_size,
                        group_id,
                        self.scheduler_block_size,
                        window=group.window,
                        retention_interval=retention_interval,
                        max_admission_tokens=max_admission_tokens,
                        max_model_len=max_model_len,
                    )
                )
        kinds: dict[KVCacheGroup, list[int]] = {}
        for group_id, group in enumerate(groups):
            kinds.setdefault(group, []).append(group_id)
        # full attention first: it tells the upper bound cheaply
        self._kinds = sorted(kinds.values(), key=lambda ids: groups[ids[0]].kind != "full")

    def hashes_for(self, hashes: Sequence[BlockHash], block_size: int) -> Sequence[BlockHash]:
        """The hashes as a group with this block size sees them."""
        if block_size == self.hash_block_size:
            return hashes
        return BlockHashListWithBlockSize(hashes, self.hash_block_size, block_size)

    def find_longest_cache_hit(self, request: Request, max_length: int) -> tuple[GroupBlocks, int]:
        """The longest prefix that every group has, its blocks a group and its length in tokens.

        Each kind may shorten the length; the round is repeated until none does.  Where the groups
        agree on less than one of them had, sliding windows remember that junction for the request.
        """
        length = max_length
        longest = 0
        while True:
            found: dict[int, list[KVCacheBlock]] = {}
            agreed = length
            for group_ids in self._kinds:
                manager = self.managers[group_ids[0]]
                blocks = manager.find_longest_cache_hit(
                    self.hashes_for(request.block_hashes, manager.block_size), agreed, group_ids
                )
                found.update(zip(group_ids, blocks, strict=True))
                agreed = len(blocks[0]) * manager.block_size
                longest = max(longest, agreed)
            if agreed == length or len(self._kinds) == 1:
                break
            length = agreed
            if length == 0:
                break
        for group_id, hit in found.items():
            del hit[agreed // self.managers[group_id].block_size :]
        for manager in self.managers:
            if isinstance(manager, SlidingWindowManager):
                manager.junctions.pop(request.request_id, None)
                if longest > agreed:
                    manager.junctions[request.request_id] = longest
        return tuple(found[group_id] for group_id in range(len(self.managers))), agreed

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: GroupBlocks, *, capped: bool = False
    ) -> int:
        """Blocks that would leave the free queue, summed over groups (pure)."""
        return sum(
            manager.get_num_blocks_to_allocate(request_id, num_tokens, blocks, capped=capped)
            for manager, blocks in zip(self.managers, new_computed_blocks, strict=True)
        )

    def add_computed_blocks(self, request_id: str, new_computed_blocks: GroupBlocks) -> None:
        """Hold the hits of every group, before any new block is taken."""
        for manager, blocks in zip(self.managers, new_computed_blocks, strict=True):
            manager.add_computed_blocks(request_id, blocks)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> GroupBlocks:
        """Take new blocks group by group."""
        return tuple(manager.allocate_new_blocks(request_id, num_tokens) for manager in self.managers)

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Give full blocks their keys, group by group, up to the last token at which a hit may land."""
        num_tokens -= num_tokens % self.scheduler_block_size
        for manager in self.managers:
            manager.cache_blocks(request, num_tokens, self.hashes_for(request.block_hashes, manager.block_size))

    def remove_skipped_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        """Free what left the windows."""
        for manager in self.managers:
            manager.remove_skipped_blocks(request_id, num_computed_tokens)

    def free(self, request_id: str) -> None:
        """Drop the request's tables, group by group."""
        for manager in self.managers:
            manager.free(request_id)

    def get_blocks(self, request_id: str) -> GroupBlocks:
        """The request's table in each group."""
        return tuple(manager.req_to_blocks.get(request_id, []) for manager in self.managers)

    def check(self) -> None:
        """Check every manager."""
        for manager in self.managers:
            manager.check()
