"""The free list as a log: the same order as a linked list, with whole arrays taken and given.

``log[head:tail]`` holds the free blocks from the next to be reused to the last, with holes (-1)
where blocks were taken from the middle.  Giving back writes at the tail, or before the head for
blocks that should go first; taking reads a slice from the head.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I32Array = npt.NDArray[np.int32]


class FreeLog:
    """Free blocks in the order in which they will be reused.

    Attributes:
        count: number of free blocks.
    """

    def __init__(self, num_blocks: int) -> None:
        """Blocks ``1 … num_blocks - 1`` are free, in that order (block 0 is the null block)."""
        self._room = num_blocks + 8
        capacity = 4 * self._room
        self._log: I32Array = np.full(capacity, -1, dtype=np.int32)
        self._at = memoryview(self._log)
        #: where each free block stands in the log; meaningless for others
        self._position: I32Array = np.zeros(num_blocks, dtype=np.int32)
        self._position_at = memoryview(self._position)
        self._head = self._tail = self._room
        self.count = 0
        self.append(np.arange(1, num_blocks, dtype=np.int32))

    def append(self, blocks: I32Array) -> None:
        """Give blocks back, to be reused last, in this order."""
        number = len(blocks)
        if self._tail + number > len(self._log):
            self._compact()
        start = self._tail
        self._tail = end = start + number
        self._log[start:end] = blocks
        self._position[blocks] = np.arange(start, end, dtype=np.int32)
        self.count += number

    def prepend(self, blocks: list[int]) -> None:
        """Give blocks back, to be reused first: ``blocks[0]`` is the very next."""
        if self._head < len(blocks):
            self._compact()
        head = self._head
        for block in reversed(blocks):
            head -= 1
            self._at[head] = block
            self._position_at[block] = head
        self._head = head
        self.count += len(blocks)

    def remove(self, blocks: I32Array) -> None:
        """Take these blocks, which must be free, from wherever they stand."""
        self._log[self._position[blocks]] = -1
        self.count -= len(blocks)

    def pop(self, number: int) -> I32Array:
        """Take the next `number` ≥ 1 blocks; there must be as many."""
        head, waste = self._head, self._tail - self._head - self.count
        if not waste:
            taken = self._log[head : head + number].copy()
            self._head = head + number
        else:
            window = number + min(waste, number)
            while True:
                part = self._log[head : head + window]
                taken = part[part >= 0]
                if len(taken) >= number:
                    break
                window = min(2 * window, number + waste)
            taken = taken[:number]
            self._head = self._position_at[taken[-1]] + 1
        self.count -= number
        return taken

    def pop_one(self) -> int:
        """Take the next block; there must be one."""
        log, head = self._at, self._head
        block: int = log[head]
        while block < 0:
            head += 1
            block = log[head]
        self._head = head + 1
        self.count -= 1
        return block

    def blocks(self) -> I32Array:
        """All free blocks, the next to be reused first (a copy)."""
        part = self._log[self._head : self._tail]
        return part[part >= 0]

    def _compact(self) -> None:
        """Close the holes and move everything to where there is room on both sides."""
        live = self.blocks()
        start = self._room
        self._log[:] = -1
        self._head, self._tail = start, start + len(live)
        self._log[start : self._tail] = live
        self._position[live] = np.arange(start, self._tail, dtype=np.int32)
