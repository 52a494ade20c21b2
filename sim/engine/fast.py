"""The fast path as the engine's process uses it."""

from __future__ import annotations

from typing import cast

from sim.core.scheduler_config import SchedulerConfig
from sim.engine.interface import Ended
from sim.fast.engine import FastEngine
from sim.fast.load import StepSeconds
from sim.recording.miss_tracker import MissTracker
from sim.recording.recorder import Recorder
from sim.timing.base import StepTime
from workloads.fingerprint import Fingerprints, sequence_fingerprints


class FastDecider:
    """A `sim.engine.interface.Decider` over `sim.fast.engine.FastEngine`."""

    def __init__(
        self,
        config: SchedulerConfig,
        step_time: StepTime,
        recorder: Recorder,
        *,
        check_invariants: bool = False,
        fingerprints: Fingerprints = sequence_fingerprints,
        misses: MissTracker | None = None,
    ) -> None:
        seconds = cast("StepSeconds", step_time)  # its batches have the same fields under the same names
        self._engine = FastEngine(
            config, seconds, recorder, check_invariants=check_invariants, fingerprints=fingerprints, misses=misses
        )
        self.add_request = self._engine.add_request
        self.watch = self._engine.watch
        self.advance = self._engine.advance
        self.check = self._engine.check

    @property
    def busy(self) -> bool:
        """Whether a request is alive or a batch in flight."""
        return self._engine.busy

    def abort(self, index: int, now_s: float) -> Ended | None:
        """End a request between two steps; None if it has ended already."""
        end = self._engine.abort(index, now_s)
        return None if end is None else Ended(*end)

    def take_ended(self) -> list[Ended]:
        """The requests that ended since the last call, in order."""
        return [Ended(*end) for end in self._engine.take_ended()]

    def close(self) -> None:
        """Hand over the rows that are still held back."""
        self._engine.take_ended()
