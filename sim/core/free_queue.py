"""The reference's free queue: a doubly linked list through the blocks themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.core.block import KVCacheBlock
from sim.errors import InvariantError


class FreeKVCacheBlockQueue:
    """Free blocks in the order in which they will be reused; the front goes first.

    Links live in the blocks, with a sentinel at each end that is never handed out: every operation
    costs O(1) a block and allocates nothing.  Blocks start in the given order.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        self._head = KVCacheBlock(-1)
        self._tail = KVCacheBlock(-2)
        self._head.next_free_block = self._tail
        self._tail.prev_free_block = self._head
        self.append_n(blocks)

    def popleft(self) -> KVCacheBlock:
        """Take the front block.  Raises `ValueError` when none is free."""
        if self.num_free_blocks == 0:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the first n blocks in order.  Raises `ValueError`, the queue unchanged, when there are fewer."""
        if n > self.num_free_blocks:
            raise ValueError(f"cannot take {n} blocks: {self.num_free_blocks} are free")
        taken: list[KVCacheBlock] = []
        block = self._head.next_free_block
        for _ in range(n):
            if block is None or block is self._tail:
                raise InvariantError(
                    f"law 1: num_free_blocks says {self.num_free_blocks}, the links end after {len(taken)} blocks"
                )
            taken.append(block)
            block = block.next_free_block
        if taken:
            assert block is not None
            self._head.next_free_block = block
            block.prev_free_block = self._head
            self.num_free_blocks -= n
            for block in taken:
                block.prev_free_block = block.next_free_block = None
        return taken

    def remove(self, block: KVCacheBlock) -> None:
        """Take a block out of the middle.  Raises `RuntimeError` naming a block that is not in the queue."""
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise RuntimeError(f"remove() called on a block that is not free: {block}")
        before.next_free_block = after
        after.prev_free_block = before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        """Put one block at the back."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks at the back, in the given order."""
        assert self._tail.prev_free_block is not None
        self._link(blocks, self._tail.prev_free_block, self._tail)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks at the front; the first given ends up first."""
        assert self._head.next_free_block is not None
        self._link(blocks, self._head, self._head.next_free_block)

    def _link(self, blocks: Sequence[KVCacheBlock], before: KVCacheBlock, after: KVCacheBlock) -> None:
        for block in blocks:
            block.prev_free_block = before
            before.next_free_block = block
            before = block
        before.next_free_block = after
        after.prev_free_block = before
        self.num_free_blocks += len(blocks)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks, front first."""
        return list(self.iter_blocks_after(None))

    def iter_blocks_after(self, cursor: KVCacheBlock | None) -> Iterator[KVCacheBlock]:
        """Blocks in eviction order behind `cursor`, or all of them for None."""
        block = (self._head if cursor is None else cursor).next_free_block
        while block is not None and block is not self._tail:
            yield block
            block = block.next_free_block

    def check(self) -> None:
        """Raise `InvariantError` unless links agree both ways, with the count and with the blocks' use."""
        seen = 0
        before = self._head
        for block in self.iter_blocks_after(None):
            if block.prev_free_block is not before:
                raise InvariantError(f"law 1: {block} does not point back to block {before.block_id}")
            if block.ref_cnt != 0 or block.is_null:
                raise InvariantError(f"law 4: {block} is in the free queue and in use")
            before = block
            seen += 1
            if seen > self.num_free_blocks:
                break
        if seen != self.num_free_blocks:
            raise InvariantError(f"law 1: {seen} blocks are linked, num_free_blocks is {self.num_free_blocks}")
        if self._tail.prev_free_block is not before:
            raise InvariantError("law 1: the tail does not point back to the last block")
