"""The simulated clock: a SimPy environment on which events can be placed at exact times.

SimPy knows delays only, and ``now + (at - now)`` is not always `at` in floating point.  Two code
paths that must agree on which of two events comes first need the exact time.
"""

from __future__ import annotations

from heapq import heappush

import simpy
from simpy.events import EventPriority

NORMAL, LATE = EventPriority(1), EventPriority(2)  # SimPy's own are 0 (urgent) and 1 (normal)


class Clock(simpy.Environment):
    """An environment that also takes events at a time."""

    def schedule_at(self, event: simpy.Event, at_s: float, priority: EventPriority) -> None:
        """Place a triggered event at a time, or now if that has passed.

        SimPy's own `schedule` with the sum of now and the delay replaced by the time itself.
        """
        heappush(self._queue, (max(at_s, self._now), priority, next(self._eid), event))


class At(simpy.Event):
    """Happens at the time `at_s`, not before now; with `late`, after everything else at that instant."""

    def __init__(self, clock: Clock, at_s: float, *, late: bool = False) -> None:
        super().__init__(clock)
        self._ok = True
        self._value = None
        clock.schedule_at(self, at_s, LATE if late else NORMAL)
