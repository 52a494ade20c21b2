"""Requests that only decode, as dates.

From step to step such a request computes one token.  It needs attention in the steps that start
with a full last block, when it takes a new one, and in the step that samples its last token.
Everything else about it is arithmetic: at the start of step s it has computed ``s - base`` tokens
and knows one more.  Its full blocks get their keys when somebody could ask for them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter

from sim.fast.request import FastRequest

_order = attrgetter("seq")


class Calendar:
    """The decoding requests of a synchronous engine.

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
        """`request`, which knows one token more than it has computed, decodes from `step` on."""
        request.base = base = step - request.computed
        request.dated = True
        insort(self.buckets[base % self.block_size], request, key=_order)
        last = step + request.stop_tokens - request.known - 1
        self.endings.setdefault(last, []).append(request)
        self.count += 1
        self.base_sum += base
        self.latest = max(self.latest, request.seq)

    def leave(self, request: FastRequest, step: int, last_token_s: float) -> None:
        """Before `step` it leaves, having ended: its counters are brought up to date."""
        self.buckets[request.base % self.block_size].remove(request)
        self.count -= 1
        self.base_sum -= request.base
        _update(request, step, last_token_s)
        if not self.count:
            self.latest = -1

    def drop(self, request: FastRequest, step: int, last_token_s: float) -> None:
        """Before `step` it leaves before its time."""
        self.leave(request, step, last_token_s)
        self.endings[request.stop_tokens + request.base - 2].remove(request)

    def clear(self, step: int, last_token_s: float) -> None:
        """Before `step` all leave."""
        for bucket in self.buckets:
            for request in bucket:
                _update(request, step, last_token_s)
            bucket.clear()
        self.endings.clear()
        self.count = self.base_sum = 0
        self.latest = -1


def _update(request: FastRequest, step: int, last_token_s: float) -> None:
    request.dated = False
    computed = step - request.base
    if computed > request.computed:
        request.last_step, request.last_token_s = step - 1, last_token_s
    request.computed = computed
    request.known = computed + 1
