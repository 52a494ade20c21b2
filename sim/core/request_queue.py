"""Waiting queues: first come first served, and by priority."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from sim.core.request import Request


class RequestQueue(Protocol):
    """A waiting queue."""

    def add(self, request: Request) -> None:
        """A request arrives."""
        ...

    def peek(self) -> Request:
        """The request to look at next; only on a queue that is not empty."""
        ...

    def pop(self) -> Request:
        """Take the request to look at next."""
        ...

    def prepend(self, request: Request) -> None:
        """A request comes back (preempted)."""
        ...

    def prepend_all(self, requests: Iterable[Request]) -> None:
        """Requests that were skipped come back in their order."""
        ...

    def remove(self, request: Request) -> None:
        """Take out an aborted request."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...


class FCFSQueue:
    """First come, first served; what comes back goes to the front."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def add(self, request: Request) -> None:
        """A request arrives."""
        self._requests.append(request)

    def peek(self) -> Request:
        """The request at the front."""
        return self._requests[0]

    def pop(self) -> Request:
        """Take the request at the front."""
        return self._requests.popleft()

    def prepend(self, request: Request) -> None:
        """Put a preempted request at the front."""
        self._requests.appendleft(request)

    def prepend_all(self, requests: Iterable[Request]) -> None:
        """Put skipped requests at the front, in the given order."""
        self._requests.extendleft(reversed(list(requests)))

    def remove(self, request: Request) -> None:
        """Take a request out."""
        self._requests.remove(request)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class PriorityQueue:
    """A heap by (priority, arrival time, request id); smaller goes first, also for what comes back."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, str, int, Request]] = []

    def add(self, request: Request) -> None:
        """A request arrives."""
        # id() settles nothing but keeps two living requests of one id from being compared themselves
        heapq.heappush(self._heap, (request.priority, request.arrival_time, request.request_id, id(request), request))

    def peek(self) -> Request:
        """The smallest request."""
        return self._heap[0][-1]

    def pop(self) -> Request:
        """Take the smallest request."""
        return heapq.heappop(self._heap)[-1]

    def prepend(self, request: Request) -> None:
        """A preempted request returns through the heap."""
        self.add(request)

    def prepend_all(self, requests: Iterable[Request]) -> None:
        """Skipped requests return through the heap."""
        for request in requests:
            self.add(request)

    def remove(self, request: Request) -> None:
        """Take a request out."""
        self._heap = [entry for entry in self._heap if entry[-1] is not request]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return (entry[-1] for entry in sorted(self._heap, key=lambda entry: entry[:3]))


def make_request_queue(policy: str) -> RequestQueue:
    """The queue of a `scheduling_policy`: ``fcfs`` or ``priority``; `ValueError` for another."""
    if policy == "fcfs":
        return FCFSQueue()
    if policy == "priority":
        return PriorityQueue()
    raise ValueError(f"scheduling_policy: {policy!r} is neither fcfs nor priority")
