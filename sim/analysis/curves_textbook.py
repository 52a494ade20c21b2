"""FIFO and LFU as textbooks have them: a cache of single blocks that knows no requests.

Each access looks for its block; one that is missing comes in at once and the policy's victim goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray
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
        """Whether each access hits, for each capacity (≥ 1): one pass, all capacities side by side.  O(stretches).

        The numbers of all capacities stand in one long integer, each in a lane of its own, so that one operation
        counts for all.  A lane's highest bit is spare: set before a subtraction, it is left where nothing was
        borrowed, which compares.  Numbers are so much larger than they should be that they never fall below 0.
        """
        accesses = len(self._accesses)
        spare = max(self._sizes, default=0)
        lane_bytes = (2 * accesses + spare).bit_length() // 8 + 1
        bits = 8 * lane_bytes
        ones = sum(1 << bits * lane for lane in range(len(capacities)))
        flags = ones << bits - 1
        room = flags + sum(min(capacity, accesses) << bits * lane for lane, capacity in enumerate(capacities))
        came_in = ones * spare
        begins: list[int] = []
        ends: list[int] = []
        found: list[int] = []
        # of each request: (end, number of block i minus i, plus the capacity and the flags)
        tables: list[list[tuple[int, int]]] = []
        offset = 0
        for size, runs in zip(self._sizes, self._runs, strict=True):
            table: list[tuple[int, int]] = []
            at = 0
            for low, high, source in runs:
                at = low
                for end, last in tables[source]:
                    if end <= at:
                        continue
                    stop = end if end < high else high
                    fresh = came_in - ones * at
                    hit = (last - fresh) & flags
                    if hit:
                        begins.append(offset + at)
                        ends.append(offset + stop)
                        found.append(hit)
                    if hit != flags:
                        missed = (hit ^ flags) >> bits - 1
                        came_in += missed * (stop - at)
                        last ^= (last ^ (fresh + room)) & ((missed << bits) - missed)
                    if table and table[-1][1] == last:
                        table[-1] = (stop, last)
                    else:
                        table.append((stop, last))
                    at = stop
                    if at == high:
                        break
            if at < size:
                table.append((size, came_in - ones * at + room))
                came_in += ones * (size - at)
            tables.append(table)
            offset += size
        if not found:
            return [np.zeros(accesses, dtype=np.bool_) for _ in capacities]
        lanes = np.frombuffer(
            b"".join([hit.to_bytes(len(capacities) * lane_bytes, "little") for hit in found]), np.uint8
        )
        hits = lanes.reshape(len(found), len(capacities), lane_bytes)[:, :, -1].T != 0
        where = np.array([begins, ends], dtype=np.int64)
        return [mark(accesses, *where[:, hit]) for hit in hits]


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
