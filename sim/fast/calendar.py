"""Requests that only decode, as dates.

From step to step such a request computes one token.  It needs attention in the steps that start
with a full last block, when it takes a new one, and in the step that samples its last token.
Everything else about it is arithmetic: when step s is scheduled it has computed ``s - base`` tokens,
and one more is known (or, in an asynchronous engine, in flight).  Its full blocks get their keys
when somebody could ask for them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter

from sim.fast.request import FastRequest

_order = attrgetter("seq")


class Calendar:
    """The decoding requests of an engine.

    Attributes:
        count: how many there are.
        base_sum: sum of their bases, so that ``count * step - base_sum`` tokens are computed when `step` starts.
        latest: no request of the calendar was admitted after the one with this number.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.count = 0
        self.base_sum = 0
        self.latest = -1
        #: by step modulo block size: who takes a block then, in running order
        self.buckets: list[list[FastRequest]] = [[] for _ in range(block_size)]
        #: by step: who samples its last token in it
        self.endings: dict[int, list[FastRequest]] = {}

    def __iter__(self) -> Iterator[FastRequest]:
        for bucket in self.buckets:
            yield from bucket

    def enter(self, request: FastRequest, step: int) -> None:
        """`request`, which computes one token in every step from now on, decodes from `step` on."""
        request.base = base = step - request.computed
        request.dated = True
        insort(self.buckets[base % self.block_size], request, key=_order)
        self.endings.setdefault(last_step(request), []).append(request)
        self.count += 1
        self.base_sum += base
        self.latest = max(self.latest, request.seq)

    def leave(self, request: FastRequest) -> None:
        """A request leaves, because it has just sampled its last token or will sample no other."""
        self.buckets[request.base % self.block_size].remove(request)
        self.count -= 1
        self.base_sum -= request.base
        request.dated = False
        if not self.count:
            self.latest = -1

    def drop(self, request: FastRequest) -> None:
        """A request leaves before its time."""
        self.leave(request)
        self.endings[last_step(request)].remove(request)

    def clear(self) -> list[FastRequest]:
        """All leave; they are returned."""
        everybody = list(self)
        for request in everybody:
            request.dated = False
        for bucket in self.buckets:
            bucket.clear()
        self.endings.clear()
        self.count = self.base_sum = 0
        self.latest = -1
        return everybody


def last_step(request: FastRequest) -> int:
    """The step in which a request of the calendar samples its last token."""
    return request.stop_tokens + request.base - 2
