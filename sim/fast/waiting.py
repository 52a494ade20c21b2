"""The waiting queue under each scheduling policy."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from sim.fast.request import FastRequest


class FirstComeQueue:
    """First come, first served; a preempted request goes to the front."""

    def __init__(self) -> None:
        self._queue: deque[FastRequest] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[FastRequest]:
        return iter(self._queue)

    def add(self, request: FastRequest) -> None:
        """A request that has just arrived."""
        self._queue.append(request)

    def add_front(self, request: FastRequest) -> None:
        """A request that has been preempted."""
        self._queue.appendleft(request)

    def give_back(self, requests: list[FastRequest]) -> None:
        """Requests that were popped and passed over, in the order in which they were popped."""
        self._queue.extendleft(reversed(requests))

    def peek(self) -> FastRequest:
        """The next one; the queue must not be empty."""
        return self._queue[0]

    def pop(self) -> FastRequest:
        """Take the next one; the queue must not be empty."""
        return self._queue.popleft()

    def remove(self, request: FastRequest) -> None:
        """Take one from anywhere (linear)."""
        self._queue.remove(request)


class PriorityQueue:
    """Smallest (priority, arrival time, request id) first; nobody jumps the queue."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, str, int, FastRequest]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[FastRequest]:
        return (entry[-1] for entry in sorted(self._heap))

    def add(self, request: FastRequest) -> None:
        """A request that has just arrived or has been preempted."""
        entry = (request.priority, request.arrival_s, request.request_id, request.index, request)
        heapq.heappush(self._heap, entry)

    add_front = add

    def give_back(self, requests: list[FastRequest]) -> None:
        """Requests that were popped and passed over."""
        for request in requests:
            self.add(request)

    def peek(self) -> FastRequest:
        """The next one; the queue must not be empty."""
        return self._heap[0][-1]

    def pop(self) -> FastRequest:
        """Take the next one; the queue must not be empty."""
        return heapq.heappop(self._heap)[-1]

    def remove(self, request: FastRequest) -> None:
        """Take one from anywhere (linear)."""
        self._heap = [entry for entry in self._heap if entry[-1] is not request]
        heapq.heapify(self._heap)


WaitingQueue = FirstComeQueue | PriorityQueue
