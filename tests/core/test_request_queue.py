"""Waiting queues."""

from __future__ import annotations

import pytest
from tiny_worlds import make_request

from sim.core.request_queue import make_request_queue


def names(queue):
    assert len(queue) == len(list(queue))
    return [request.request_id for request in queue]


def filled(policy, *requests):
    queue = make_request_queue(policy)
    for request in requests:
        queue.add(request)
    return queue


def drained(queue):
    out = []
    while queue:
        first = queue.peek()
        assert queue.pop() is first
        out.append(first.request_id)
    return out


A, B, C, D = (make_request(name, 2) for name in "abcd")


def test_an_unknown_policy():
    with pytest.raises(ValueError, match="'sjf' is neither fcfs nor priority"):
        make_request_queue("sjf")


class TestFirstComeFirstServed:
    def test_order_of_arrival(self):
        assert drained(filled("fcfs", B, A, C)) == ["b", "a", "c"]

    def test_a_preempted_request_goes_to_the_front(self):
        queue = filled("fcfs", A, B)
        queue.prepend(C)
        assert names(queue) == ["c", "a", "b"]

    def test_skipped_requests_return_in_their_order(self):
        queue = filled("fcfs", C)
        queue.prepend_all([A, B])
        queue.prepend_all([])
        assert names(queue) == ["a", "b", "c"]

    def test_remove(self):
        queue = filled("fcfs", A, B, C)
        queue.remove(B)
        assert names(queue) == ["a", "c"]


class TestPriority:
    def test_smaller_priority_then_earlier_then_id_as_a_string(self):
        requests = [
            make_request("late", 2, priority=1, arrival_time=5.0),
            make_request("r9", 2, priority=1, arrival_time=1.0),
            make_request("r10", 2, priority=1, arrival_time=1.0),
            make_request("urgent", 2, priority=-1, arrival_time=9.0),
            make_request("idle", 2, priority=7, arrival_time=0.0),
        ]
        queue = filled("priority", *requests)
        assert names(queue) == ["urgent", "r10", "r9", "late", "idle"]
        assert drained(queue) == ["urgent", "r10", "r9", "late", "idle"]

    def test_what_comes_back_does_not_jump_the_heap(self):
        late = make_request("late", 2, arrival_time=5.0)
        queue = filled("priority", A, B)
        queue.prepend(late)
        queue.prepend_all([D, C])
        assert drained(queue) == ["a", "b", "c", "d", "late"]

    @pytest.mark.parametrize("gone", [A, B, C, D])
    def test_remove_keeps_the_order(self, gone):
        queue = filled("priority", D, C, B, A)
        queue.remove(gone)
        assert drained(queue) == [name for name in "abcd" if name != gone.request_id]
