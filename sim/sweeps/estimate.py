"""How long a sweep will take: its first point is run for a few seconds, and what it did is scaled up."""

from __future__ import annotations

import tempfile
import time
from typing import NamedTuple

from sim.errors import KvsimError
from sim.sweeps.expand import Point
from workloads.errors import WorkloadError


class Estimate(NamedTuple):
    """Seconds of one point; `how` says what was measured.  `at_least`: its end was not in sight."""

    seconds: float
    how: str
    at_least: bool


class _Enough(Exception):
    """The first point has run for as long as it may."""


def seconds_of_a_point(point: Point, most_s: float = 3.0) -> Estimate:
    """Run a point, in a folder that is gone afterwards, to its end or for `most_s` seconds.

    A point that fails counts as long as it took to fail.
    """
    from sim.experiment import run

    begun = time.monotonic()
    reached: tuple[int, int | None] = (0, None)

    def watch(ended: int, total: int | None, now_s: float) -> None:
        nonlocal reached
        reached = (ended, total)
        if time.monotonic() - begun > most_s:
            raise _Enough

    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        try:
            run(point.config, out=folder, progress=watch)
        except _Enough:
            took = time.monotonic() - begun
            ended, total = reached
            if total:
                return Estimate(
                    took * total / ended,
                    f"its first point had {ended:,} of {total:,} requests after {took:.0f} s",
                    False,
                )
            return Estimate(took, f"its first point had not ended after {took:.0f} s", True)
        except (KvsimError, WorkloadError, OSError):
            pass
    took = time.monotonic() - begun
    return Estimate(took, f"its first point took {took:.1f} s", False)


def duration(seconds: float) -> str:
    """Seconds in the largest unit that fits: ``3.5 hours``."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} seconds"
