"""The free list as a log: the same order as a linked list, with whole arrays taken and given.

``log[head:tail]`` holds the free blocks from the next to be reused to the last, with holes (0, the
null block) where blocks were taken from the middle.  Giving back writes at the tail, or before the
head for blocks that should go first; taking reads a slice from the head.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64Array = npt.NDArray[np.int64]


class FreeLog:
    """Free blocks in the order in which they will be reused.

    Attributes:
        count: number of free blocks.
    """

    def __init__(self, num_blocks: int) -> None:
        """Blocks ``1 … num_blocks - 1`` are free, in that order (block 0 is the null block)."""
        self._room = num_blocks + 8
        self._log = np.zeros(4 * self._room, dtype=np.int32)
        #: where each free block stands in the log; meaningless for others
        self._position = np.zeros(num_blocks, dtype=np.int32)
        self._head = self._tail = self._room
        self.count = 0
        self.append(np.arange(1, num_blocks))

    def append(self, blocks: I64Array) -> None:
        """Give blocks back, to be reused last, in this order."""
        number = len(blocks)
        if self._tail + number > len(self._log):
            self._compact()
        start = self._tail
        self._tail = end = start + number
        self._log[start:end] = blocks
        self._position[blocks] = np.arange(start, end)
        self.count += number

    def prepend(self, blocks: I64Array) -> None:
        """Give blocks back, to be reused first: ``blocks[0]`` is the very next."""
        number = len(blocks)
        if self._head < number:
            self._compact()
        end = self._head
        self._head = start = end - number
        self._log[start:end] = blocks
        self._position[blocks] = np.arange(start, end)
        self.count += number

    def remove(self, blocks: I64Array) -> None:
        """Take these blocks, which must be free, from wherever they stand."""
        self._log[self._position[blocks]] = 0
        self.count -= len(blocks)

    def pop(self, number: int) -> I64Array:
        """Take the next `number` ≥ 1 blocks; there must be as many."""
        head = self._head
        part = self._log[head : head + number]
        self.count -= number
        if np.count_nonzero(part) == number:
            self._head = head + number
            return np.asarray(part, dtype=np.int64)
        window = number
        while True:
            window = min(2 * window + 16, self._tail - head)
            part = self._log[head : head + window]
            at = part.nonzero()[0]
            if len(at) >= number:
                break
        at = at[:number]
        self._head = head + int(at[-1]) + 1
        return np.asarray(part[at], dtype=np.int64)

    def blocks(self) -> I64Array:
        """All free blocks, the next to be reused first (a copy)."""
        part = self._log[self._head : self._tail]
        return np.asarray(part[part != 0], dtype=np.int64)

    def _compact(self) -> None:
        """Close the holes and move everything to where there is room on both sides."""
        live = self.blocks()
        start = self._room
        self._log[:] = 0
        self._head, self._tail = start, start + len(live)
        self._log[start : self._tail] = live
        self._position[live] = np.arange(start, self._tail)
