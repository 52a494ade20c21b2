"""Asynchronous scheduling: a batch is put together before the tokens of the one ahead are known.

Nothing but what is below differs from `Scheduler`; the loop that keeps two batches in flight is the
engine's.
"""

from __future__ import annotations

from collections.abc import Collection

from sim.core.request import Request, RequestStatus
from sim.core.scheduler import Scheduler
from sim.core.scheduler_output import ScheduledRequest, SchedulerOutput


class AsyncScheduler(Scheduler):
    """A `Scheduler` that counts tokens which will come (*placeholders*) as if they were there.

    A request has ``num_tokens`` known tokens, ``num_output_placeholders`` that will come, and
    ``num_inflight_tokens`` scheduled in batches that have not been applied.  What was in flight when a
    request was preempted is *stale*: its token still arrives, but counts for nothing else.
    """

    def _on_scheduled(self, entry: ScheduledRequest) -> None:
        request = entry.request
        request.num_inflight_tokens += entry.num_tokens
        entry.samples = not request.is_prefill_chunk
        if entry.samples:
            request.num_output_placeholders += 1

    def _on_preempted(self, request: Request) -> None:
        request.num_output_placeholders = 0
        request.num_stale_tokens = request.num_inflight_tokens

    def _ends_in_flight(self, request: Request) -> bool:
        return (
            request.num_output_placeholders > 0
            and request.num_computed_tokens + 2 - request.num_output_placeholders
            >= request.num_prompt_tokens + request.max_tokens
        )

    def _must_wait(self, request: Request) -> bool:
        return request.num_stale_tokens > 0

    def update_from_output(self, output: SchedulerOutput, stopped: Collection[str] = ()) -> list[Request]:
        """The oldest batch in flight has run: append what it sampled and end what is done."""
        ended = []
        for entry in output.scheduled.values():
            request = entry.request
            stale = request.num_stale_tokens > 0
            request.num_inflight_tokens -= entry.num_tokens
            if stale:
                request.num_stale_tokens -= entry.num_tokens
            if request.status.is_finished:
                continue
            if not stale:
                self._free_encoder_inputs(request, request.num_computed_tokens - request.num_output_placeholders)
            if not entry.samples:
                continue
            request.append_output_token()
            placeholders = request.num_output_placeholders
            if not stale:
                request.num_output_placeholders -= 1
            if request.status is RequestStatus.RUNNING and placeholders > 0:
                self.kv_cache_manager.cache_blocks(request, request.num_computed_tokens - request.num_inflight_tokens)
            if self._stop(request, stopped):
                ended.append(request)
        return ended
