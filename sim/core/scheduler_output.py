"""What one call of `Scheduler.schedule` decided."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.core.request import Request
from sim.core.statistics import PrefixCacheStats


@dataclass(slots=True)
class ScheduledRequest:
    """A request's part of a batch: it computes tokens ``num_computed … num_computed + num_tokens - 1``.

    `new_block_ids` has a list for each group; for a request that has just started or resumed it is the
    whole table, hits included.  `samples` says that it answers a token when the batch ends.
    """

    request: Request
    num_tokens: int
    num_computed: int
    new_block_ids: tuple[list[int], ...]
    encoder_inputs: list[int] = field(default_factory=list)
    samples: bool = False
    starts: bool = False


@dataclass(slots=True)
class SchedulerOutput:
    """A batch, in scheduling order, with what happened while it was put together."""

    scheduled: dict[str, ScheduledRequest]
    preempted: list[Request]
    prefix_cache_stats: PrefixCacheStats

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Tokens of the batch."""
        return sum(entry.num_tokens for entry in self.scheduled.values())
