"""Full attention: every token sees every earlier one."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import BlockHash, KVCacheBlock
from sim.core.block_pool import BlockPool
from sim.core.managers.base import SingleTypeKVCacheManager
from sim.core.request import Request


class FullAttentionManager(SingleTypeKVCacheManager):
    """Keeps all blocks; a hit is the longest run of cached full blocks from the start.

    Where hashes are finer than this group's blocks, the block in which a resend of the prompt would
    resume has a second key, for the prefix that ends there; no hit can land on it, but events tell it.
    """

    def __init__(
        self, block_pool: BlockPool, block_size: int, group_id: int, alignment_tokens: int, hash_block_size: int
    ) -> None:
        super().__init__(block_pool, block_size, group_id, alignment_tokens)
        self.hash_block_size = hash_block_size

    def cache_blocks(self, request: Request, num_tokens: int, block_hashes: Sequence[BlockHash]) -> None:
        """Give full blocks their keys, and the block of the resend boundary its second one."""
        done = self.num_cached_block.get(request.request_id, 0)
        super().cache_blocks(request, num_tokens, block_hashes)
        boundary = (request.num_prompt_tokens - 1) // self.hash_block_size * self.hash_block_size
        index = boundary // self.block_size
        if boundary % self.block_size and done <= index < self.num_cached_block.get(request.request_id, 0):
            self.block_pool.cache_partial_block(
                request,
                self.req_to_blocks[request.request_id][index],
                boundary - self.hash_block_size,
                boundary,
                self.group_id,
                request.block_hashes[boundary // self.hash_block_size - 1],
                request.block_hashes[boundary // self.hash_block_size - 2] if boundary > self.hash_block_size else None,
            )

    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_length: int, group_ids: Sequence[int]
    ) -> list[list[KVCacheBlock]]:
        """The longest run of cached full blocks from the start."""
        found: list[list[KVCacheBlock]] = []
        for index in range(min(max_length // self.block_size, len(block_hashes))):
            blocks = self.block_pool.get_cached_block(block_hashes[index], group_ids)
            if blocks is None:
                break
            found.append(blocks)
        while len(found) * self.block_size % self.alignment_tokens:
            found.pop()
        return [list(column) for column in zip(*found, strict=True)] if found else [[] for _ in group_ids]
