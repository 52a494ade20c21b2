"""FIFO and LFU as textbooks have them: a cache of single blocks that knows no requests.

Each access looks for its block; one that is missing comes in at once and the policy's victim goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray, IntArray
from sim.analysis.stack_distance import ReuseRuns, mark


class Fifo:
    """First in, first out, at any capacity.

    The queue is never built: a block that came in as number n is there while fewer than `capacity` blocks came in
    behind it.  Neighbours that came in together hit or miss together, since each miss pushes the others on by
    one; so a request's blocks are kept as stretches ``(end, number of block i minus i)``, and a run (see
    `sim.analysis.stack_distance`) takes over the stretches of the request that it continues.
    """

    def __init__(self, accesses: Accesses, runs: ReuseRuns) -> None:
        self._accesses = accesses
        self._sizes = np.diff(accesses.starts).tolist()
        self._runs: list[list[tuple[int, int, int]]] = [[] for _ in self._sizes]
        for request, low, high, source in zip(
            runs.request.tolist(), runs.low.tolist(), runs.high.tolist(), runs.source.tolist(), strict=True
        ):
            self._runs[request].append((low, high, source))

    def hits_many(self, capacities: Sequence[int]) -> list[BoolArray]:
        """Whether each access hits, for each capacity (≥ 1): one pass, all capacities side by side.  O(stretches)."""
        room = np.asarray(capacities, dtype=np.int64)
        came_in = np.zeros(len(room), dtype=np.int64)
        begins: list[int] = []
        ends: list[int] = []
        found: list[BoolArray] = []
        tables: list[list[tuple[int, IntArray]]] = []
        offset = 0
        for size, runs in zip(self._sizes, self._runs, strict=True):
            table: list[tuple[int, IntArray]] = []
            at = 0
            for low, high, source in runs:
                at = low
                for end, base in tables[source]:
                    if end <= at:
                        continue
                    stop = end if end < high else high
                    fresh = came_in - at
                    missed = fresh - base > room
                    begins.append(offset + at)
                    ends.append(offset + stop)
                    found.append(missed)
                    table.append((stop, np.where(missed, fresh, base)))
                    came_in = came_in + (stop - at) * missed
                    at = stop
                    if at == high:
                        break
            if at < size:
                table.append((size, came_in - at))
                came_in = came_in + (size - at)
            tables.append(table)
            offset += size
        if not found:
            return [np.zeros(len(self._accesses), dtype=np.bool_) for _ in capacities]
        hit = ~np.array(found)
        where = np.array([begins, ends])
        return [mark(len(self._accesses), *where[:, column]) for column in hit.T]


def lfu_hits(accesses: Accesses, capacity: int) -> BoolArray:
    """Whether each access hits when the block used least often since it came in goes first, among equals the least
    recently used one.  O(accesses).

    Blocks of one count stand in one queue, in the order of their last use (Shah, Mitra, Matani 2010).
    """
    missed: list[int] = []
    uses: dict[int, int] = {}
    queues: list[OrderedDict[int, None]] = [OrderedDict(), OrderedDict()]
    least = 1
    for at, key in enumerate(accesses.keys.tolist()):
        count = uses.get(key, 0)
        if count:
            del queues[count][key]
        else:
            missed.append(at)
            if len(uses) >= capacity:
                while not queues[least]:
                    least += 1
                victim, _ = queues[least].popitem(last=False)
                del uses[victim]
            least = 1
        count += 1
        uses[key] = count
        if count == len(queues):
            queues.append(OrderedDict())
        queues[count][key] = None
    hit = np.ones(len(accesses), dtype=np.bool_)
    hit[missed] = False
    return hit
