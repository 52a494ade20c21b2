"""Which implementation decides, and how long its steps take."""

from __future__ import annotations

from typing import NamedTuple

from sim.config.models import ExperimentConfig
from sim.config.resolve import Resolved
from sim.engine.fast import FastDecider
from sim.engine.interface import Decider
from sim.engine.reference import ReferenceEngine
from sim.errors import ConfigError
from sim.fast.support import supports
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
        ConfigError: the fast path is asked for and does not cover this engine.
    """
    step_time = build_step_time(config.timing, config.memory)
    asked = config.engine.implementation
    why_not = supports(
        resolved.scheduler,
        eviction_policy=config.eviction.policy,
        real_hashes=config.recording.kv_events != "none",
    )
    if asked == "fast" and why_not is not None:
        raise ConfigError(f"engine.implementation: the fast path does not cover this engine: {why_not}")
    fast = asked != "reference" and why_not is None
    make = FastDecider if fast else ReferenceEngine
    decider: Decider = make(resolved.scheduler, step_time, recorder, check_invariants=check_invariants)
    reason = f"the fast path does not cover this engine: {why_not}" if asked == "auto" and why_not is not None else ""
    return Choice(decider, "fast" if fast else "reference", reason, step_time.describe())
