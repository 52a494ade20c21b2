"""Takes the steps of a synchronous engine: by the calendar where it can, literally where it must."""

from __future__ import annotations

from sim.core.scheduler_config import SchedulerConfig
from sim.fast.batch import FastBatch
from sim.fast.drive import Drive, order
from sim.fast.eviction_rows import Sink
from sim.fast.load import Load, StepSeconds, load_of, step_row
from sim.fast.request import RUNNING, FastRequest
from sim.fast.scheduler import FastScheduler

_ANY = 1 << 62


class SyncDrive(Drive):
    """Decides, times and records the steps of a synchronous engine."""

    def __init__(self, config: SchedulerConfig, scheduler: FastScheduler, step_time: StepSeconds, sink: Sink) -> None:
        super().__init__(config, scheduler, step_time, sink)
        self._clock_s = 0.0

    def advance(self, now_s: float, until_s: float, stop_at_end: bool) -> float | None:
        """Take at least one step, none but the first at or after `until_s`; see `FastEngine.advance`."""
        try:
            return self._advance(now_s, until_s, stop_at_end)
        finally:
            self._hand_over_rows()

    def _advance(self, now_s: float, until_s: float, stop_at_end: bool) -> float | None:
        clock: float | None = now_s
        scheduler, calendar = self.scheduler, self.calendar
        budget = self.config.max_num_batched_tokens
        first = self.step
        while clock is not None:
            self._clock_s = clock
            if self.step > first and (clock >= until_s or (self.ended and stop_at_end)):
                return clock
            if not scheduler.alive:
                return clock if self.step > first or self.ended else None
            done = False
            if calendar.count <= budget and not scheduler.endless:
                if not (self.explicit or scheduler.can_admit(budget - calendar.count) or self._keys_may_admit()):
                    done = self._leap(until_s)
                elif scheduler.running:
                    done = self._mixed_step()
            if not done and not self._literal_step():
                return clock if self.step > first else None
            clock = self._clock_s
        return clock

    def _keys_may_admit(self) -> bool:
        """Whether a waiting request may start in this step because of keys that it gives before it admits."""
        scheduler = self.scheduler
        return bool(scheduler.keys.eager and scheduler.waiting and len(scheduler.running) < self.config.max_num_seqs)

    # ---- only the calendar ----------------------------------------------------------------------

    def _leap(self, until_s: float) -> bool:
        """Steps in which every running request decodes, up to the first that ends a request; False: none was taken."""
        scheduler, calendar = self.scheduler, self.calendar
        count, first, endings = calendar.count, self.step, calendar.endings
        if not count:
            return False
        eager = scheduler.keys.eager
        takers, starts, sizes = self._look_ahead(until_s, 1 if eager else _ANY)
        steps = len(sizes)
        if not steps:
            return False
        lost = sizes
        if takers:
            self._at(starts[0], first)
            lost = self._take(takers, starts, sizes)
        if eager:
            self._give_eager_keys(first)
        last = first + steps - 1
        ended = endings.pop(last, None)
        self._record_leap(starts, sizes, lost, len(ended) if ended else 0)
        self.leaps += steps
        self.step, self._clock_s = last + 1, starts[-1]
        if ended:
            self._end(sorted(ended, key=order))
        return True

    def _look_ahead(self, until_s: float, most: int) -> tuple[list[FastRequest], list[float], list[int]]:
        """The steps that the calendar alone can take, at most `most`.

        Returns who takes a block, in order; when each step starts, and when the last one ends; how
        many blocks each step takes.
        """
        calendar, size = self.calendar, self.scheduler.block_size
        buckets, endings, count = calendar.buckets, calendar.endings, calendar.count
        left = self.scheduler.pool.num_free
        step, clock, seconds = self.step, self._clock_s, self._step_time.seconds
        context = count * step - calendar.base_sum
        takers: list[FastRequest] = []
        starts, sizes = [clock], []
        while True:
            bucket = buckets[step % size]
            taken = len(bucket)
            if taken:
                left -= taken
                if left < 0:
                    break
                takers += bucket
            sizes.append(taken)
            clock += seconds(Load(0, 0, count, context))
            starts.append(clock)
            if step in endings or clock >= until_s or len(sizes) >= most:
                break
            step += 1
            context += count
        return takers, starts, sizes

    def _record_leap(self, starts: list[float], sizes: list[int], lost: list[int], ended: int) -> None:
        calendar, scheduler, usable = self.calendar, self.scheduler, self._usable
        count, running, waiting = calendar.count, len(scheduler.running), len(scheduler.waiting)
        step = self.step
        context = count * step - calendar.base_sum
        blocks = scheduler.pool.num_free + sum(sizes)
        last = len(sizes) - 1
        rows = self._step_rows
        for number, taken in enumerate(sizes):
            start, blocks = starts[number], blocks - taken
            rows.append(
                (
                    step, start, starts[number + 1] - start, running, waiting, 0, 0, count, context, 0, blocks,
                    1.0 - blocks / usable, 0, ended if number == last else 0, 0, 0, 0, 0, lost[number],
                )
            )  # fmt: skip
            step += 1
            context += count

    # ---- the calendar beside explicit requests --------------------------------------------------

    def _mixed_step(self) -> bool:
        """A step of the calendar's requests and of explicit ones; False: not done, nothing has changed."""
        scheduler, calendar, pool = self.scheduler, self.calendar, self.scheduler.pool
        evicted = pool.evicted_blocks
        batch = self._compose(self._clock_s)
        if batch is None or not (batch.entries or calendar.count):
            return False
        load = load_of(batch, calendar.count, calendar.count * self.step - calendar.base_sum)
        state = len(scheduler.running), len(scheduler.waiting), pool.num_free
        ended = calendar.endings.pop(self.step, [])
        self._finish_step(batch, load, state, pool.evicted_blocks - evicted, ended)
        self.mixed += 1
        return True

    # ---- by the rules -----------------------------------------------------------------------------

    def _literal_step(self) -> bool:
        """A step with every request looked at; False if nothing was scheduled, and nothing will be."""
        scheduler, step = self.scheduler, self.step
        for request in self.calendar.clear():
            self._left(request)
        self._at(self._clock_s, step)
        evicted = scheduler.pool.evicted_blocks
        batch = scheduler.schedule(self._clock_s)
        rejected = self._dead_ends.find(batch)
        state = len(scheduler.running), len(scheduler.waiting), scheduler.pool.num_free
        for request, reason in rejected:
            scheduler.reject(request, reason, self._clock_s)
            self.ended.append(request)
        self.explicit = []
        progress = bool(batch.entries or batch.preempted)
        if progress:
            self._finish_step(batch, load_of(batch), state, scheduler.pool.evicted_blocks - evicted, [])
            self.literal += 1
        for request in scheduler.running:
            self._place(request)
        return progress or bool(rejected)

    # ---- what all have in common --------------------------------------------------------------------

    def _finish_step(
        self, batch: FastBatch, load: Load, state: tuple[int, int, int], evicted: int, ended: list[FastRequest]
    ) -> None:
        """Time, record and apply a step.

        Args:
            batch: the requests that were looked at.
            load: what it computes, the calendar's requests included.
            state: running and waiting requests and free blocks once it was scheduled.
            evicted: keys that it cost.
            ended: requests of the calendar that end with it.
        """
        scheduler, step, clock = self.scheduler, self.step, self._clock_s
        end = clock
        if load.decode_requests or load.prefill_requests:
            end = clock + self._step_time.seconds(load)
        batch.step = step
        sampled = scheduler.apply(batch, end)
        self.step, self._clock_s = step + 1, end
        ended = sorted(ended + sampled, key=order) if ended else sampled
        for request, gap_s in batch.stalls:
            self._sink.row("stalls", (step, request.index, gap_s))
        self._step_rows.append(step_row(batch, load, state, self._usable, evicted, (clock, end), len(ended)))
        if ended:
            self._end(ended)
        if batch.entries and any(entry.samples for entry in batch.entries):
            self._replace_sampled()

    def _end(self, requests: list[FastRequest]) -> None:
        """These end with the step that has just been taken, in this order."""
        for request in requests:
            if request.dated:
                self.calendar.leave(request)
                self._left(request)
            self.scheduler.finish(request, self._clock_s)
        self.ended += requests

    def _place(self, request: FastRequest) -> None:
        """Put a running request where it belongs for the next step."""
        if request.known == request.computed + 1 and request.last_step == self.step - 1 >= 0:
            self.calendar.enter(request, self.step)
        else:
            self.explicit.append(request)

    def _left(self, request: FastRequest) -> None:
        """A request is no longer in the calendar: its counters are brought up to date."""
        computed = self.step - request.base
        if computed > request.computed:
            request.last_step, request.last_token_s = self.step - 1, self._clock_s
        request.computed = computed
        request.known = computed + 1
        self.scheduler.give_keys(request, computed)

    def withdraw(self, request: FastRequest) -> None:
        """A living request is about to be taken away between two steps."""
        if request.dated:
            self.calendar.drop(request)
            self._left(request)
        elif request.status == RUNNING:
            self.explicit.remove(request)
