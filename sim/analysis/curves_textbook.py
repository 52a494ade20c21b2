"""FIFO and LFU as textbooks have them: a cache of single blocks that knows no requests.

Each access looks for its block; one that is missing comes in at once and the policy's victim goes.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray


def fifo_hits(accesses: Accesses, capacity: int) -> BoolArray:
    """Whether each access hits when the block that came in first goes first.  O(accesses).

    The queue is never built: a block that came in as number n is still there while fewer than
    `capacity` others came in behind it.
    """
    missed: list[int] = []
    came_in = [-capacity] * accesses.num_keys
    # blocks that come only once always miss and are never looked for again: they only push the others on
    shared = (accesses.previous >= 0) | (accesses.following < len(accesses))
    places = np.flatnonzero(shared)
    alone_before = places - np.arange(len(places))
    again = 0
    for at, key, alone in zip(places.tolist(), accesses.keys[places].tolist(), alone_before.tolist(), strict=True):
        misses = alone + again
        if misses - came_in[key] >= capacity:
            came_in[key] = misses
            again += 1
            missed.append(at)
    hit = shared
    hit[missed] = False
    return hit


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
