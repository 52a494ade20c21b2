"""Events at exact times on a SimPy environment.

SimPy knows delays only, and ``now + (at - now)`` is not always `at` in floating point.  Two code
paths that must agree on which of two events comes first need the exact time.
"""

from __future__ import annotations

import math

import simpy
from simpy.events import EventPriority

NORMAL, LATE = EventPriority(1), EventPriority(2)  # SimPy's own are 0 (urgent) and 1 (normal)


class At(simpy.Event):
    """Happens at the time `at_s`, not before now; with `late`, after everything else at that instant."""

    def __init__(self, env: simpy.Environment, at_s: float, *, late: bool = False) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=LATE if late else NORMAL, delay=exact_delay(env.now, at_s))


def exact_delay(now_s: float, at_s: float) -> float:
    """The delay for which ``now_s + delay == at_s`` in floating point; 0 for a time that has passed."""
    delay = at_s - now_s
    if delay <= 0.0:
        return 0.0
    while now_s + delay < at_s:
        delay = math.nextafter(delay, math.inf)
    while now_s + delay > at_s:
        delay = math.nextafter(delay, 0.0)
    return delay
