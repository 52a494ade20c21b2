"""What every manager of a KV-cache group does: it keeps the block tables of that group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sim.core.block import BlockHash, KVCacheBlock
from sim.core.block_pool import BlockPool
from sim.core.request import Request
from sim.errors import InvariantError


class SingleTypeKVCacheManager(ABC):
    """Block tables of one group.

    Args:
        block_pool: the pool that all groups share.
        block_size: tokens a block.
        group_id: the group's number.
        alignment_tokens: hits must land on multiples of this.
    """

    def __init__(self, block_pool: BlockPool, block_size: int, group_id: int, alignment_tokens: int) -> None:
        self.block_pool = block_pool
        self.block_size = block_size
        self.group_id = group_id
        self.alignment_tokens = alignment_tokens
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}
        self.num_cached_block: dict[str, int] = {}

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: Sequence[KVCacheBlock], *, capped: bool = False
    ) -> int:
        """How many blocks leave the free queue so that the request has slots for `num_tokens` tokens.

        Counts new blocks, and hit blocks that nobody holds now.  `capped` asks for the most that the
        group can hold at once, where that is less (pure; may be called at any time).
        """
        required = self.blocks_for(num_tokens)
        if capped:
            required = min(required, self.max_blocks_held())
        owned = len(self.req_to_blocks.get(request_id, ()))
        new = max(required - owned - len(new_computed_blocks), 0)
        return new + sum(1 for block in new_computed_blocks if block.ref_cnt == 0 and not block.is_null)

    def max_blocks_held(self) -> int:
        """The most blocks that one request can hold in this group at once."""
        return self.block_pool.num_gpu_blocks

    def add_computed_blocks(self, request_id: str, blocks: Sequence[KVCacheBlock]) -> None:
        """Begin a table with hit blocks and hold them.  Only for a request that has no table yet."""
        if not blocks:
            return
        if request_id in self.req_to_blocks:
            raise InvariantError(f"law 2: request {request_id} has blocks and was given hits in group {self.group_id}")
        self.block_pool.touch(blocks)
        self.req_to_blocks[request_id] = list(blocks)
        self.num_cached_block[request_id] = len(blocks)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        """Grow the table until it has slots for `num_tokens` tokens; returns the new blocks."""
        table = self.req_to_blocks.setdefault(request_id, [])
        new = self.block_pool.get_new_blocks(max(self.blocks_for(num_tokens) - len(table), 0))
        table += new
        return new

    def cache_blocks(self, request: Request, num_tokens: int, block_hashes: Sequence[BlockHash]) -> None:
        """Give the blocks that `num_tokens` known tokens fill their keys."""
        done = self.num_cached_block.get(request.request_id, 0)
        full = num_tokens // self.block_size
        if full <= done:
            return
        self.block_pool.cache_full_blocks(
            request,
            self.req_to_blocks[request.request_id],
            done,
            full,
            self.block_size,
            self.group_id,
            block_hashes,
            self.cache_mask(request, done, full),
        )
        self.num_cached_block[request.request_id] = full

    def cache_mask(self, request: Request, start: int, stop: int) -> list[bool] | None:
        """Which of blocks ``start … stop - 1`` can ever serve a hit; None for all."""
        return None

    def free(self, request_id: str) -> None:
        """Drop the table, last block first, so that the tail of a chain is evicted before its head."""
        self.block_pool.free_blocks(reversed(self.req_to_blocks.pop(request_id, [])))
        self.num_cached_block.pop(request_id, None)

    @abstractmethod
    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_length: int, group_ids: Sequence[int]
    ) -> list[list[KVCacheBlock]]:
        """The longest hit of at most `max_length` tokens, a list of blocks for each of the groups.

        `group_ids` are groups of this manager's kind, size and window, looked up together; the hit's
        length is a multiple of `alignment_tokens`.  Pure.
        """

    def remove_skipped_blocks(self, request_id: str, num_computed_tokens: int) -> None:  # noqa: B027 - a kind may free nothing
        """Free what no later token can see, given how many tokens are computed."""

    def check(self) -> None:
        """Raise `InvariantError` unless tables and counts agree."""
        for request_id, table in self.req_to_blocks.items():
            if self.num_cached_block.get(request_id, 0) > len(table):
                raise InvariantError(f"law 3: {request_id} has more cached blocks than blocks in group {self.group_id}")
            for block in table:
                if not block.is_null and block.ref_cnt < 1:
                    raise InvariantError(f"law 2: {block} is in the table of {request_id} but not held")
        if set(self.num_cached_block) - set(self.req_to_blocks):
            raise InvariantError(f"law 3: group {self.group_id} counts cached blocks of requests without a table")
