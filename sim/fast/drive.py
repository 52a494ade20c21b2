"""What synchronous and asynchronous engines have in common when the calendar takes part in a step."""

from __future__ import annotations

from collections.abc import Collection

from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import FastBatch
from sim.fast.calendar import Calendar
from sim.fast.dead_ends import DeadEnds
from sim.fast.eviction_rows import Sink
from sim.fast.load import StepSeconds
from sim.fast.request import RUNNING, FastRequest
from sim.fast.scheduler import FastScheduler


class Drive:
    """State and moves of an engine whose decoding requests stand in a calendar.

    Attributes:
        calendar: requests that only decode.
        explicit: the other running requests, in order of admission.
        ended: requests that have ended by themselves, in order, until the engine takes them.
        step: number of the next step.
        leaps, mixed, literal: steps that the calendar took alone, beside explicit requests, not at all.
    """

    #: tokens that a decoding request of the calendar is known to have in a step, beyond those computed before it
    known_ahead = 1

    def __init__(self, config: SchedulerConfig, scheduler: FastScheduler, step_time: StepSeconds, sink: Sink) -> None:
        self.config = config
        self.scheduler = scheduler
        self.calendar = Calendar(scheduler.block_size)
        self.explicit: list[FastRequest] = []
        self.ended: list[FastRequest] = []
        self.step = 0
        self.leaps = self.mixed = self.literal = 0
        self._dead_ends = DeadEnds(config, scheduler)
        self._step_time = step_time
        self._sink = sink
        self._usable = config.num_gpu_blocks - 1
        self._budget, self._encoder_budget = config.max_num_batched_tokens, config.encoder_compute_budget
        #: a chunk of one request never needs more blocks
        self._most_blocks = self._budget // scheduler.block_size + 1
        self._step_rows: list[tuple[float | int, ...]] = []

    @property
    def in_flight(self) -> int:
        """Batches with work that have been scheduled and not applied, between calls of `advance`."""
        return 0

    def advance(self, now_s: float, until_s: float, stop_at_end: bool) -> float | None:
        """Take at least one step, none but the first at or after `until_s`; see `FastEngine.advance`."""
        raise NotImplementedError

    def withdraw(self, request: FastRequest) -> None:
        """A living request is about to be taken away between two steps."""
        raise NotImplementedError

    def _compose(self, clock_s: float, closing: Collection[FastRequest] = ()) -> FastBatch | None:
        """Schedule a step in which the calendar's requests decode, and others are looked at one by one.

        Args:
            clock_s: when it is scheduled.
            closing: requests of the calendar that are passed over in this step.

        Returns:
            The batch of those others; None, and nothing has changed, if a block could be missing or a
            decoding request be left without budget by one that runs before it.
        """
        scheduler, calendar, step = self.scheduler, self.calendar, self.step
        pool, size, explicit = scheduler.pool, scheduler.block_size, self.explicit
        batch = FastBatch(self._budget, self._encoder_budget, calendar.count - len(closing))
        if batch.budget < 0:
            return None
        bucket = calendar.buckets[step % size]
        if closing:
            bucket = [request for request in bucket if request not in closing]
        interleaved = bool(explicit) and explicit[0].seq < calendar.latest
        # usually there is room enough whatever their chunks are
        if interleaved or len(bucket) + len(explicit) * self._most_blocks > pool.num_free:
            needed, tokens = len(bucket), 0
            for request in explicit:
                most = scheduler.chunk(request, self._budget)  # decodes may stand behind it
                needed += max(-(-(request.computed + most) // size) - request.blocks, 0)
                tokens += most
            if needed > pool.num_free or (interleaved and (tokens > batch.budget or scheduler.keys.eager)):
                return None
        self._at(clock_s, step)
        if interleaved:
            for request in sorted(bucket + explicit, key=order):
                if request.dated:
                    self._take([request], [clock_s], [1])
                else:
                    self._chunk(request, batch)
        else:
            if bucket:
                self._take(bucket, [clock_s], [len(bucket)])
            if scheduler.keys.eager:
                self._give_eager_keys(step, closing)
            for request in explicit:
                self._chunk(request, batch)
        if scheduler.can_admit(batch.budget):
            running = len(scheduler.running)
            scheduler.admit(batch)
            explicit += scheduler.running[running:]
        if batch.entries:
            scheduler.advance(batch)
        return batch

    def _chunk(self, request: FastRequest, batch: FastBatch) -> None:
        """Go on with a running request that is not in the calendar; blocks are known to be there."""
        scheduler = self.scheduler
        if batch.budget <= 0 or (request.placeholders and scheduler.ends_in_flight(request)):
            return
        tokens = scheduler.chunk(request, batch.budget)
        items: list[int] = []
        if request.items and tokens:
            tokens, items = scheduler.encode(request, request.computed, tokens, batch)
        if tokens <= 0:
            return
        before = request.blocks
        scheduler.extend(request, tokens)
        batch.add(request, tokens, before)
        if items:
            scheduler.take_embeddings(request, items, batch)

    def _take(self, takers: list[FastRequest], starts: list[float], sizes: list[int]) -> list[int]:
        """Blocks for the steps ahead, `sizes` of them in each; how many keys each step costs."""
        blocks, lost = self.scheduler.pool.take_each([request.index for request in takers], sizes, starts)
        for request, block in zip(takers, blocks, strict=True):
            request.table[request.blocks] = block
            request.blocks += 1
        return lost

    def _give_eager_keys(self, step: int, closing: Collection[FastRequest] = ()) -> None:
        """Blocks that become full in this step get their keys at once where somebody could ask for them."""
        for request in sorted((request for request in self.calendar if request.eager), key=order):
            # one that is passed over has what the end of the batch before gave it
            ahead = self.known_ahead - (request in closing)
            self.scheduler.give_keys(request, step - request.base + ahead)

    def _replace_sampled(self) -> None:
        """Explicit requests that have sampled may decode from now on."""
        explicit, self.explicit = self.explicit, []
        for request in explicit:
            if request.status == RUNNING:
                self._place(request)

    def _place(self, request: FastRequest) -> None:
        """Put a running request where it belongs for the next step."""
        raise NotImplementedError

    def _hand_over_rows(self) -> None:
        """Give the rows of steps to the sink."""
        if self._step_rows:
            rows, self._step_rows = self._step_rows, []
            self._sink.add_rows("steps", rows)

    def _at(self, clock_s: float, step: int) -> None:
        """Blocks change hands in this step, at this time."""
        self.scheduler.now_s = clock_s
        self.scheduler.pool.begin_step(step, clock_s)


def order(request: FastRequest) -> int:
    """The place of a running request among the others."""
    return request.seq
