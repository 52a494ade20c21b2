"""Takes the steps of an asynchronous engine: a batch is put together while the one ahead of it runs.

One turn schedules batch s and then applies batch s - 1, if that is in flight.  When turn s begins, a
request of the calendar has computed ``s - base`` tokens, knows as many, and has one in flight, which
batch s - 1 computes.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import Entry, FastBatch
from sim.fast.drive import Drive, order
from sim.fast.eviction_rows import Sink
from sim.fast.load import Load, StepSeconds, load_of, step_row
from sim.fast.request import RUNNING, FastRequest
from sim.fast.scheduler import FastScheduler

MOST_IN_FLIGHT = 2
_ALL = 1 << 62


class _InFlight(NamedTuple):
    """A batch that runs or will, and what its step's row needs."""

    batch: FastBatch
    load: Load
    state: tuple[int, int, int]
    evicted: int
    start_s: float
    end_s: float

    @property
    def works(self) -> bool:
        """Whether it computes anything."""
        return bool(self.load.decode_requests or self.load.prefill_requests)


class AsyncDrive(Drive):
    """Decides, times and records the steps of an asynchronous engine."""

    known_ahead = 0

    def __init__(self, config: SchedulerConfig, scheduler: FastScheduler, step_time: StepSeconds, sink: Sink) -> None:
        super().__init__(config, scheduler, step_time, sink)
        self._batches: deque[_InFlight] = deque()
        self._free_at_s = 0.0
        self._clock_s = 0.0

    @property
    def in_flight(self) -> int:
        """Batches with work that have been scheduled and not applied."""
        return sum(1 for made in self._batches if made.works)

    def advance(self, now_s: float, until_s: float, stop_at_end: bool) -> float | None:
        """Apply at least one batch, none but the first at or after `until_s`; see `FastEngine.advance`."""
        try:
            return self._advance(now_s, until_s, stop_at_end)
        finally:
            self._hand_over_rows()

    def _advance(self, now_s: float, until_s: float, stop_at_end: bool) -> float | None:
        scheduler, batches = self.scheduler, self._batches
        if self._free_at_s < now_s and not self.in_flight:
            batches.clear()  # the engine slept: what was left had no work
        clock: float | None = None
        while True:
            self._clock_s = now_s if clock is None else clock
            after = None
            if len(batches) == 1 and self.calendar.count and not scheduler.endless:
                if not (self.explicit or batches[0].batch.entries):
                    after = self._leap(until_s)
                if after is None:
                    after = self._turn()
            if after is None:
                after = self._literal_turn()
            if after is None:
                return clock
            clock = after
            if clock >= until_s or (self.ended and stop_at_end) or not (scheduler.alive or self.in_flight):
                self._clock_s = clock
                return clock

    # ---- with the calendar ------------------------------------------------------------------------

    def _leap(self, until_s: float) -> float | None:
        """Turns in which every running request decodes and none ends; when the last batch applied in them ends.

        None, and nothing has changed, if the next turn is not such a one.  Nobody is explicit, and nothing
        but the calendar's tokens is in flight.
        """
        scheduler, calendar, ahead = self.scheduler, self.calendar, self._batches[0]
        count = calendar.count
        spare = self._budget - count
        if spare < 0 or scheduler.keys.eager or scheduler.can_admit(spare):
            return None
        buckets, size, left = calendar.buckets, scheduler.block_size, scheduler.pool.num_free
        endings, seconds = calendar.endings, self._step_time.seconds
        now, end, applied = self._clock_s, self._free_at_s, ahead.end_s
        context = count * self.step - calendar.base_sum
        takers: list[FastRequest] = []
        scheduled, sizes, starts, ends = [], [], [], []
        step = self.step
        while step - 1 not in endings:
            bucket = buckets[step % size]
            taken = len(bucket)
            if taken:
                left -= taken
                if left < 0:
                    break
                takers += bucket
            sizes.append(taken)
            scheduled.append(now)
            start = now if now > end else end
            starts.append(start)
            end = start + seconds(Load(0, 0, count, context))
            ends.append(end)
            now, applied = applied, end  # the next turn comes when the batch ahead has ended
            step += 1
            context += count
            if now >= until_s:
                break
        if not sizes:
            return None
        lost = sizes
        if takers:
            self._at(scheduled[0], self.step)
            lost = self._take(takers, scheduled, sizes)
        self._launch_leap(starts, ends, sizes, lost)
        return now

    def _launch_leap(self, starts: list[float], ends: list[float], sizes: list[int], lost: list[int]) -> None:
        """All batches of a leap have been scheduled, and all but the newest are applied."""
        scheduler, calendar, usable, step = self.scheduler, self.calendar, self._usable, self.step
        count, running, waiting = calendar.count, len(scheduler.running), len(scheduler.waiting)
        context = count * step - calendar.base_sum
        free = scheduler.pool.num_free + sum(sizes)
        ahead = self._batches.popleft()
        self._close(ahead, ahead.batch, [])
        rows = self._step_rows
        for start, end, size, evicted in zip(starts, ends, sizes, lost, strict=True):
            free -= size
            rows.append(
                (
                    step, start, end - start, running, waiting, 0, 0, count, context, 0, free,
                    1.0 - free / usable, 0, 0, 0, 0, 0, 0, evicted,
                )
            )  # fmt: skip
            step += 1
            context += count
        rows.pop()  # the newest is still in flight
        newest = FastBatch(0, 0)
        newest.step = step - 1
        load = Load(0, 0, count, context - count)
        self._batches.append(_InFlight(newest, load, (running, waiting, free), lost[-1], starts[-1], ends[-1]))
        self.step = step
        self._free_at_s = ends[-1]
        self.leaps += len(sizes)

    def _turn(self) -> float | None:
        """A turn in which the calendar's requests decode; None, and nothing has changed, if it must be literal."""
        scheduler, calendar, step = self.scheduler, self.calendar, self.step
        pool, now_s = scheduler.pool, self._clock_s
        # these have their last token in flight; whoever the scheduler knows to end with it is passed over
        last = calendar.endings.get(step - 1)
        closing = [request for request in last if self._passed_over(request)] if last else []
        evicted = pool.evicted_blocks
        batch = self._compose(now_s, closing)
        if batch is None:
            return None
        decodes = calendar.count - len(closing)
        context = calendar.count * step - calendar.base_sum
        for request in closing:
            context -= step - request.base
        if batch.entries:
            self.mixed += 1
        else:
            self.leaps += 1
        made = self._launch(batch, load_of(batch, decodes, context), pool.evicted_blocks - evicted)
        oldest = self._batches.popleft()
        self._batches.append(made)
        self._finish_turn(oldest)
        return oldest.end_s

    def _passed_over(self, request: FastRequest) -> bool:
        stop = request.stop_tokens
        return stop >= request.prompt_tokens + request.max_tokens or stop >= self.config.max_model_len

    def _finish_turn(self, oldest: _InFlight) -> None:
        """Apply a batch, explicit requests and those of the calendar alike."""
        scheduler, batch, end_s = self.scheduler, oldest.batch, oldest.end_s
        explicit, ended = batch, []
        if batch.entries:
            for entry in batch.entries:
                if entry.request.dated:
                    explicit = self._apply_dated(batch, end_s)
                    break
            ended = scheduler.apply(explicit, end_s)
        else:
            scheduler.set_time(end_s)
        dated = self.calendar.endings.pop(batch.step, None)
        if dated:
            for request in dated:
                self.calendar.leave(request)
                request.known = request.stop_tokens
                scheduler.give_keys(request, request.known - 1)
            ended = sorted(ended + dated, key=order)
        self._close(oldest, explicit, ended)
        if self.explicit and (batch.entries or self._batches[-1].batch.entries):
            self._replace_sampled()

    def _apply_dated(self, batch: FastBatch, end_s: float) -> FastBatch:
        """Apply a batch to requests that are in the calendar by now; the rest of it is returned."""
        rest = FastBatch(0, 0)
        rest.step = batch.step
        for entry in batch.entries:
            request = entry.request
            if not request.dated:
                rest.entries.append(entry)
            elif request.status == RUNNING:
                # all but its times follows from the calendar
                rest.token(request, end_s)
                if request.items:
                    self.scheduler.encoder.release(request.index, request.items, _ALL)
        return rest

    def _place(self, request: FastRequest) -> None:
        """A request decodes by the calendar when nothing but its next token is in flight, from the newest batch."""
        newest = self._batches[-1].batch if self._batches else None
        if (
            newest is not None
            and request.computed == request.known
            and request.placeholders == 1
            and not request.stale
            and request.last_scheduled == newest.step
            and request.in_flight == request.last_tokens
            and (not request.items or request.items[-1].offset + request.items[-1].length < request.known)
        ):
            self.calendar.enter(request, self.step)
        else:
            self.explicit.append(request)

    # ---- literally ----------------------------------------------------------------------------------

    def _literal_turn(self) -> float | None:
        """Fill the pipeline and apply the oldest batch: when that one ends; None if nothing will happen."""
        scheduler, batches, now_s = self.scheduler, self._batches, self._clock_s
        self._leave_calendar()
        while scheduler.alive and len(batches) < MOST_IN_FLIGHT:
            made = self._schedule_literally(now_s)
            to_come = any(other.works for other in batches)
            rejected = self._dead_ends.find(made.batch, others_in_flight=to_come)
            for request, reason in rejected:
                scheduler.reject(request, reason, now_s)
                self.ended.append(request)
            if made.works or made.batch.preempted or batches:
                batches.append(made)
                continue
            self.step -= 1  # nothing has changed, so it was no step
            if not rejected:
                return None
        if not batches:
            return now_s
        oldest = batches.popleft()
        ended = scheduler.apply(oldest.batch, oldest.end_s)
        self._close(oldest, oldest.batch, ended)
        self.literal += 1
        self.explicit = list(scheduler.running)
        self._replace_sampled()
        return oldest.end_s

    def _schedule_literally(self, now_s: float) -> _InFlight:
        scheduler = self.scheduler
        self._at(now_s, self.step)
        evicted = scheduler.pool.evicted_blocks
        batch = scheduler.schedule(now_s)
        return self._launch(batch, load_of(batch), scheduler.pool.evicted_blocks - evicted)

    def _leave_calendar(self) -> None:
        """Bring the counters of all requests in the calendar up to date, and their entries into the batch in flight."""
        entries = []
        for request in self.calendar.clear():
            if self._update(request):
                entry = Entry(request, 1, request.blocks)
                entry.computed_before = request.computed - 1
                entry.samples = True
                entries.append(entry)
        if entries:
            batch = self._batches[-1].batch
            batch.entries = sorted(batch.entries + entries, key=lambda entry: entry.request.seq)
        self.explicit = []

    def _update(self, request: FastRequest) -> bool:
        """Bring up to date the counters of a request that has left the calendar; False if they were."""
        computed = self.step - request.base
        if computed == request.computed:
            return False
        request.computed = request.known = computed
        request.placeholders = request.in_flight = 1
        request.last_step, request.last_token_s = self.step - 2, self._clock_s
        self.scheduler.give_keys(request, computed - 1)
        return True

    def withdraw(self, request: FastRequest) -> None:
        """A living request is about to be taken away between two steps."""
        if request.dated:
            self.calendar.drop(request)
            self._update(request)
        elif request.status == RUNNING and request in self.explicit:
            self.explicit.remove(request)

    # ---- what both have in common ---------------------------------------------------------------------

    def _launch(self, batch: FastBatch, load: Load, evicted: int) -> _InFlight:
        """A batch has been scheduled: when it runs, and what its row will say."""
        scheduler = self.scheduler
        batch.step = self.step
        self.step += 1
        for entry in batch.entries:
            entry.request.last_scheduled, entry.request.last_tokens = batch.step, entry.tokens
        start_s = self._clock_s if self._clock_s > self._free_at_s else self._free_at_s
        works = load.decode_requests or load.prefill_requests
        end_s = self._free_at_s = start_s + (self._step_time.seconds(load) if works else 0.0)
        state = len(scheduler.running), len(scheduler.waiting.entries), scheduler.pool.num_free
        return _InFlight(batch, load, state, evicted, start_s, end_s)

    def _close(self, made: _InFlight, applied: FastBatch, ended: list[FastRequest]) -> None:
        """A batch has been applied: end who ends with it, and record its step."""
        if ended:
            for request in ended:
                self.scheduler.finish(request, made.end_s)
            self.ended += ended
        for request, gap_s in applied.stalls:
            self._sink.row("stalls", (made.batch.step, request.index, gap_s))
        times = made.start_s, made.end_s
        self._step_rows.append(
            step_row(made.batch, made.load, made.state, self._usable, made.evicted, times, len(ended))
        )
