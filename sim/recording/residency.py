"""Life and eviction of blocks, seen from the pool: the rows of the eviction table."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block import KVCacheBlock, key_group_id, key_hash
from sim.core.block_pool import PoolObserver
from sim.core.request import Request
from sim.recording.recorder import Recorder


class BlockResidency(PoolObserver):
    """Watches a pool of `num_blocks` blocks and records a row for each that is evicted.

    `now_s` and `step` are set by the engine before anything happens; times are seconds.
    `group_block_sizes` are the block sizes of the KV cache groups, in tokens.
    """

    def __init__(self, num_blocks: int, group_block_sizes: Sequence[int], recorder: Recorder) -> None:
        self.now_s = 0.0
        self.step = 0
        self._served = -1
        self._sizes = list(group_block_sizes)
        self._recorder = recorder
        self._allocated_s = [0.0] * num_blocks
        self._used_s = [0.0] * num_blocks
        self._hits = [0] * num_blocks
        self._owner = [-1] * num_blocks

    def serving(self, request: Request) -> None:
        """Blocks are taken for this request from now on."""
        self._served = request.index

    def allocated(self, blocks: Sequence[KVCacheBlock]) -> None:
        """A new life begins for these blocks."""
        now, owner = self.now_s, self._served
        for block in blocks:
            number = block.block_id
            self._allocated_s[number] = self._used_s[number] = now
            self._hits[number] = 0
            self._owner[number] = owner

    def hit(self, blocks: Sequence[KVCacheBlock]) -> None:
        """They served a request."""
        for block in blocks:
            self._hits[block.block_id] += 1

    def releasing(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Nobody uses them any more."""
        for block in blocks:
            self._used_s[block.block_id] = self.now_s

    def evicted(self, block: KVCacheBlock) -> None:
        """Record the end of this content."""
        key = block.block_hash
        assert key is not None
        number, group = block.block_id, key_group_id(key)
        now = self.now_s
        self._recorder.row(
            "evictions",
            (
                now,
                self.step,
                number,
                group,
                int.from_bytes(key_hash(key)[-8:], "big"),
                block.num_hashed_tokens // self._sizes[group] - 1,
                now - self._allocated_s[number],
                now - self._used_s[number],
                self._hits[number],
                self._served,
                self._owner[number],
            ),
        )
