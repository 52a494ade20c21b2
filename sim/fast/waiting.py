"""The waiting queue under each scheduling policy."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from sim.fast.request import FastRequest


class FirstComeQueue:
    """First come, first served; a preempted request goes to the front.

    Attributes:
        entries: the queue; the length of this one is asked for so often that nothing may stand before it.
    """

    def __init__(self) -> None:
        self.entries: deque[FastRequest] = deque()

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[FastRequest]:
        return iter(self.entries)

    def add(self, request: FastRequest) -> None:
        """A request that has just arrived."""
        self.entries.append(request)

    def add_front(self, request: FastRequest) -> None:
        """A request that has been preempted."""
        self.entries.appendleft(request)

    def give_back(self, requests: list[FastRequest]) -> None:
        """Requests that were popped and passed over, in the order in which they were popped."""
        self.entries.extendleft(reversed(requests))

    def peek(self) -> FastRequest:
        """The next one; the queue must not be empty."""
        return self.entries[0]

    def pop(self) -> FastRequest:
        """Take the next one; the queue must not be empty."""
        return self.entries.popleft()

    def remove(self, request: FastRequest) -> None:
        """Take one from anywhere (linear)."""
        self.entries.remove(request)


class PriorityQueue:
    """Smallest (priority, arrival time, request id) first; nobody jumps the queue.

    Attributes:
        entries: the heap.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[int, float, str, int, FastRequest]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[FastRequest]:
        return (entry[-1] for entry in sorted(self.entries))

    def add(self, request: FastRequest) -> None:
        """A request that has just arrived or has been preempted."""
        entry = (request.priority, request.arrival_s, request.request_id, request.index, request)
        heapq.heappush(self.entries, entry)

    add_front = add

    def give_back(self, requests: list[FastRequest]) -> None:
        """Requests that were popped and passed over."""
        for request in requests:
            self.add(request)

    def peek(self) -> FastRequest:
        """The next one; the queue must not be empty."""
        return self.entries[0][-1]

    def pop(self) -> FastRequest:
        """Take the next one; the queue must not be empty."""
        return heapq.heappop(self.entries)[-1]

    def remove(self, request: FastRequest) -> None:
        """Take one from anywhere (linear)."""
        self.entries[:] = [entry for entry in self.entries if entry[-1] is not request]
        heapq.heapify(self.entries)


WaitingQueue = FirstComeQueue | PriorityQueue
