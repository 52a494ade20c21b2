"""A free queue that watches another one: it may neither hand out a block in use nor lose one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sim.core.block import KVCacheBlock
from sim.core.block_pool import FreeQueue
from sim.errors import InvariantError, KvsimError

Result = TypeVar("Result")


class CheckedQueue:
    """Passes everything on to `queue` and compares what comes back with what went in.

    Costs O(1) a block.  A policy that breaks a law, or fails itself, is stopped at that very call.

    Args:
        name: of the policy, for messages.
        queue: the policy's queue.
        blocks: the blocks that it was made with.

    Raises:
        InvariantError: from every method, with the law that does not hold or the error in the policy's code.
    """

    def __init__(self, name: str, queue: FreeQueue, blocks: Sequence[KVCacheBlock]) -> None:
        self.name = name
        self.queue = queue
        self._free = {block.block_id for block in blocks}
        self._same_count()

    @property
    def num_free_blocks(self) -> int:
        """Number of free blocks."""
        return len(self._free)

    def popleft(self) -> KVCacheBlock:
        """Take the block to reuse next."""
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the n blocks to reuse next.  Raises `ValueError` when there are fewer."""
        if n > len(self._free):
            raise ValueError(
                "No free blocks available" if n == 1 else f"cannot take {n} blocks: {len(self._free)} are free"
            )
        blocks = self._run("popleft_n", lambda: self.queue.popleft_n(n))
        if len(blocks) != n:
            raise self._broken(1, f"handed out {len(blocks)} blocks where {n} were asked for")
        for block in blocks:
            if block.ref_cnt or block.is_null:
                raise self._broken(4, f"handed out block {block.block_id}, which {block.ref_cnt} requests hold")
            if block.block_id not in self._free:
                raise self._broken(1, f"handed out block {block.block_id}, which is not free (or twice)")
            self._free.discard(block.block_id)
        self._same_count()
        return blocks

    def remove(self, block: KVCacheBlock) -> None:
        """Take out a block that was hit."""
        if block.block_id not in self._free:
            raise RuntimeError(f"remove() called on a block that is not free: {block}")
        self._run("remove", lambda: self.queue.remove(block))
        self._free.discard(block.block_id)
        self._same_count()

    def append(self, block: KVCacheBlock) -> None:
        """Take in one cached block."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take in cached blocks."""
        self._run("append_n", lambda: self.queue.append_n(blocks))
        self._free.update(block.block_id for block in blocks)
        self._same_count()

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take in blocks that cannot be hit."""
        self._run("prepend_n", lambda: self.queue.prepend_n(blocks))
        self._free.update(block.block_id for block in blocks)
        self._same_count()

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks in the order of reuse."""
        return self._run("get_all_free_blocks", self.queue.get_all_free_blocks)

    def check(self) -> None:
        """The policy's own check, and that its order has each free block once."""
        self._run("check", self.queue.check)
        ids = [block.block_id for block in self.get_all_free_blocks()]
        if set(ids) != self._free or len(ids) != len(self._free):
            lost, odd = sorted(self._free - set(ids)), sorted(set(ids) - self._free)
            raise self._broken(1, f"lost blocks {lost}, has blocks that are not free {odd}, or lists one twice")

    def _same_count(self) -> None:
        count = self.queue.num_free_blocks
        if count != len(self._free):
            raise self._broken(
                1, f"says that {count} blocks are free, but {len(self._free)} are: it lost or invented one"
            )

    def _run(self, method: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except KvsimError:
            raise
        except Exception as error:
            raise InvariantError(
                f"eviction policy {self.name!r}: {method}() failed: {type(error).__name__}: {error}"
            ) from error

    def _broken(self, law: int, text: str) -> InvariantError:
        return InvariantError(f"law {law}: eviction policy {self.name!r} {text}")
