"""Sliding-window attention: a token sees the last `window` tokens, itself included."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import BlockHash, KVCacheBlock
from sim.core.block_pool import BlockPool
from sim.core.managers.base import SingleTypeKVCacheManager
from sim.core.request import Request


class SlidingWindowManager(SingleTypeKVCacheManager):
    """Keeps the blocks of the window; what lies before it is the null block in the table.

    Args:
        window: tokens that a token sees, itself included.
        retention_interval: which full blocks get a key: None = all that could serve a hit at an aligned
            boundary; 0 = those before the boundary at which a resend of the prompt can resume, and before
            a junction found at lookup; N > 0 = also those that end every N-token segment.
        max_admission_tokens: the most tokens that may need slots beyond the window at once (what can be
            scheduled before anything is freed).
        max_model_len: the longest sequence, tokens.
    """

    def __init__(
        self,
        block_pool: BlockPool,
        block_size: int,
        group_id: int,
        alignment_tokens: int,
        *,
        window: int,
        retention_interval: int | None,
        max_admission_tokens: int,
        max_model_len: int,
    ) -> None:
        super().__init__(block_pool, block_size, group_id, alignment_tokens)
        self.window = window
        self.retention_interval = retention_interval
        self.run_blocks = self.blocks_for(window - 1)
        self.junctions: dict[str, int] = {}
        self._max_blocks = self.blocks_for(min(window - 1 + max_admission_tokens, max_model_len)) + 1

    def max_blocks_held(self) -> int:
        """Blocks of the window and of what can be scheduled on top, plus one for their misalignment."""
        return self._max_blocks

    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_length: int, group_ids: Sequence[int]
    ) -> list[list[KVCacheBlock]]:
        """The right-most cached run as long as the window needs; else the run at the very start."""
        null = self.block_pool.null_block
        count = min(max_length // self.block_size, len(block_hashes))
        hit: list[list[KVCacheBlock]] = [[null] * len(group_ids)] * count
        run = 0
        for index in range(count - 1, -1, -1):
            blocks = self.block_pool.get_cached_block(block_hashes[index], group_ids)
            if blocks is None:
                run = 0
                continue
            if run == 0 and (index + 1) * self.block_size % self.alignment_tokens:
                continue
            hit[index] = blocks
            run += 1
            if run >= self.run_blocks:
                del hit[index + run :]
                return [list(column) for column in zip(*hit, strict=True)]
        del hit[run:]
        while len(hit) * self.block_size % self.alignment_tokens:
            hit.pop()
        return [list(column) for column in zip(*hit, strict=True)] if hit else [[] for _ in group_ids]

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens at the start that the next token cannot see."""
        return max(num_computed_tokens - self.window + 1, 0)

    def remove_skipped_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        """Free the blocks wholly outside the next token's window, newest first, up to the first null one."""
        table = self.req_to_blocks.get(request_id)
        if not table:
            return
        null = self.block_pool.null_block
        removed = []
        skipped = min(self.num_skipped_tokens(num_computed_tokens) // self.block_size, len(table))
        for index in range(skipped - 1, -1, -1):
            if table[index] is null:
                break
            removed.append(table[index])
            table[index] = null
        self.block_pool.free_blocks(removed)

    def cache_mask(self, request: Request, start: int, stop: int) -> list[bool] | None:
        """Blocks that end at most a window before a boundary that a hit may land on."""
        align = self.alignment_tokens
        if self.run_blocks == 0:  # a window of one token needs no earlier block
            return [False] * (stop - start)
        if self.retention_interval is None:
            if align == self.block_size or self.run_blocks * self.block_size >= align:
                return None
            return [self._near((index + 1) * self.block_size, align) for index in range(start, stop)]
        boundaries = [(request.num_prompt_tokens - 1) // align * align]
        if request.request_id in self.junctions:
            boundaries.append(self.junctions[request.request_id])
        reach = self.run_blocks * self.block_size
        mask = []
        for index in range(start, stop):
            end = (index + 1) * self.block_size
            kept = any(boundary - reach < end <= boundary for boundary in boundaries)
            if not kept and self.retention_interval > 0:
                kept = self._near(end, self.retention_interval)
            mask.append(kept)
        return mask

    def _near(self, end: int, interval: int) -> bool:
        """Whether a block that ends at token `end` is in the run before the next multiple of `interval`."""
        boundary = -(-end // interval) * interval
        return boundary - end < self.run_blocks * self.block_size

    def free(self, request_id: str) -> None:
        """Drop the table and the junction."""
        super().free(request_id)
        self.junctions.pop(request_id, None)
