"""What the engine's process asks of an implementation that decides, and what it gets back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from workloads.spec import RequestSpec


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that has ended.  Times are seconds (None: it never came to that), counts tokens.

    `status` and `reason` are those of the requests table; see `sim.recording.schema`.
    """

    request_index: int
    status: str
    reason: str | None
    finish_s: float
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    output_tokens: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    phantom_hit_tokens: int = 0


class Decider(Protocol):
    """An engine that decides step by step and records steps, stalls and evictions on the way.

    Time is given to it and never read; it always stands at the end of a step, with the results of
    that step applied.
    """

    @property
    def busy(self) -> bool:
        """Whether a request is alive or a batch in flight."""

    def add_request(self, index: int, spec: RequestSpec, now_s: float) -> None:
        """A request arrives; `index` is new and larger than any before."""

    def watch(self, index: int) -> None:
        """Something waits for the end of this living request: `advance` must not run past it."""

    def abort(self, index: int, now_s: float) -> Ended | None:
        """The client of a request gives up, between two steps; None if it has ended already."""

    def advance(self, now_s: float, until_s: float) -> float | None:
        """Take at least one step, the first one at `now_s`, none of the others at or after `until_s`.

        Returns the time at which the last one ends, or None if nothing was and will be scheduled
        before something changes from outside.
        """

    def take_ended(self) -> list[Ended]:
        """The requests that ended since the last call, in order."""

    def close(self) -> None:
        """Hand over rows that are still held back."""

    def check(self) -> None:
        """Raise `InvariantError` unless all state agrees."""
