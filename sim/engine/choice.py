"""Which implementation decides, and how long its steps take."""

from __future__ import annotations

from typing import NamedTuple

from sim.config.models import ExperimentConfig
from sim.config.resolve import Resolved
from sim.engine.interface import Decider
from sim.engine.reference import ReferenceEngine
from sim.recording.recorder import Recorder
from sim.timing.build import build_step_time


class Choice(NamedTuple):
    """A decider, the name of its implementation, why it is this one, and its step time in words."""

    decider: Decider
    name: str
    reason: str
    timing: str


def choose_decider(
    config: ExperimentConfig, resolved: Resolved, recorder: Recorder, *, check_invariants: bool = False
) -> Choice:
    """The implementation that `engine.implementation` asks for.

    Raises:
        ConfigError: the step time cannot be made.
    """
    step_time = build_step_time(config.timing, config.memory)
    decider = ReferenceEngine(resolved.scheduler, step_time, recorder, check_invariants=check_invariants)
    return Choice(decider, "reference", "", step_time.describe())
