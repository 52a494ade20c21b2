"""Why blocks missed, found out at every admission from what is known of each key at that moment.

The tracker is fed by an engine (`sim.fast.watch`), or through `sim.recording.miss_observer` by the
readable one.  It writes the table ``misses`` as the run goes on, and keeps what the cost of evictions
needs, which only the end of the run can tell (`sim.analysis.eviction_cost`).

Memory: 13 bytes for each distinct block of content (16 more and some for variants once images, adapters
or salts have come), 12 for each evicted block, 12 for each time that an unused block was hit or evicted,
about 60 for each admission and 100 for each step that evicts.  At the end 16 for each block asked for
come to that, and about as much again for sorting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sim.fast.keys import KeyTable, Span, keys_of
from sim.fast.pool import Takers
from sim.recording.columns import Growing, grown
from sim.recording.key_variants import KINDS, KeyVariants
from workloads.spec import RequestSpec

I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CAUSES = (
    "never_seen",
    "key_differs",
    "evicted",
    "preempted",
    "not_computed_yet",
    "unreachable",
    "not_kept",
    "cap",
)
NEVER_SEEN, KEY_DIFFERS, EVICTED, PREEMPTED, NOT_COMPUTED_YET, UNREACHABLE, NOT_KEPT, CAP = range(len(CAUSES))


class Sink(Protocol):
    """Where rows go; see `sim.recording.recorder.Recorder`."""

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Append one row."""


class EvictionHistory(NamedTuple):
    """What happened to cached blocks, in *rows*: row e is the e-th eviction, and moment e is just before it.

    Attributes:
        block_size: tokens.
        keys: of each row; 0 in a group that is not watched.
        recomputed_tokens: of each row.
        admission_rows, admission_request, admission_time_s: of each admission, in order: how many
            rows there were before it, whose it was, and when.
        wanted: keys asked for, one after another; `wanted_admission`: by which admission, in order.
        free: key, from, to: an unused block had this key from one row on and lost it, or was hit, before
            another.
    """

    block_size: int
    keys: I32Array
    recomputed_tokens: I64Array
    admission_rows: I64Array
    admission_request: I64Array
    admission_time_s: npt.NDArray[np.float64]
    wanted: I32Array
    wanted_admission: I32Array
    free: tuple[I32Array, I32Array, I32Array]


class _Living:
    """A request: its category, what it is about to compute, and what it once had computed, in blocks."""

    __slots__ = ("category", "done", "due", "spans")

    def __init__(self, category: str) -> None:
        self.category = category
        self.spans: Sequence[Span] = ()
        self.due = (0, 0)
        self.done = 0


class MissTracker:
    """A `sim.fast.watch.Watch` that explains misses.

    Args:
        sink: receives rows of ``misses``.
        num_blocks: blocks of the pool.
        block_size: tokens of a block, of the group that is watched.
        hash_block_size: tokens of a block hash, a divisor of `block_size`.

    Attributes:
        asked_blocks, hit_blocks, missed_blocks: over all admissions, the last one by cause.
        first_asked_blocks, first_hit_blocks: over first admissions.
        differing_blocks: missed because the key differs, by `KINDS`.
        evictions: rows of the table ``evictions`` so far.
    """

    def __init__(self, sink: Sink, num_blocks: int, block_size: int, hash_block_size: int) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.hash_block_size = hash_block_size
        self.asked_blocks = self.hit_blocks = self.first_asked_blocks = self.first_hit_blocks = 0
        self.missed_blocks = np.zeros(len(CAUSES), dtype=np.int64)
        self.differing_blocks = np.zeros(len(KINDS), dtype=np.int64)
        self.evictions = 0
        self._sink = sink
        self._living: dict[int, _Living] = {}
        self._come_back: set[int] = set()
        # of each key: has it ever been given to a block; its last eviction; requests that are to compute it
        self._ever = np.zeros(1024, dtype=np.bool_)
        self._last_row = np.full(1024, -1, dtype=np.int32)
        self._last_step = np.full(1024, -1, dtype=np.int32)
        self._due = np.zeros(1024, dtype=np.int32)
        # of each block: its key and the number of rows since when it has been free (-1: it is not)
        self._free_key = np.zeros(num_blocks, dtype=np.int64)
        self._free_since = np.full(num_blocks, -1, dtype=np.int64)
        self._step_times: dict[int, float] = {}
        self._rows = {"key": Growing(np.int32), "recomputed": Growing(np.int64)}
        self._admissions = {"row": Growing(np.int64), "request": Growing(np.int64), "time_s": Growing(np.float64)}
        self._wants = {"admission": Growing(np.int64), "base": Growing(np.int64), "length": Growing(np.int64)}
        self._free = {"key": Growing(np.int32), "from": Growing(np.int32), "to": Growing(np.int32)}

    @property
    def needs_all_keys(self) -> bool:
        """Whether requests with images, adapters or salts have come, whose keys are compared with others'."""
        return self._variants.active

    @property
    def admissions(self) -> int:
        """Admissions so far."""
        return self._admissions["row"].size

    def attach(self, keys: KeyTable, now: Callable[[], tuple[int, float]]) -> None:
        """Called once by the engine: the keys in which it tells things, and what gives step and time (s)."""
        self._keys = keys
        self._now = now
        self._variants = KeyVariants(keys, self.hash_block_size, self.block_size // self.hash_block_size)

    # ---- requests -------------------------------------------------------------------------------

    def arrived(self, index: int, spec: RequestSpec) -> None:
        """A request arrives."""
        self._living[index] = _Living(spec.category)
        self._variants.arrived(index, spec)

    def admitted(self, index: int, spans: Sequence[Span], hit_blocks: int, known_tokens: int) -> None:
        """A request starts or comes back: explain the blocks that it did not find."""
        request = self._living[index]
        request.spans = spans
        full = known_tokens // self.block_size
        self._fit()
        self._note_want(index, spans, full)
        self.asked_blocks += full
        self.hit_blocks += hit_blocks
        if index not in self._come_back:
            self.first_asked_blocks += full
            self.first_hit_blocks += hit_blocks
        if hit_blocks < full:
            self._explain(index, request, hit_blocks, full, known_tokens)
            self._due[keys_of(spans, hit_blocks, full)] += 1
            request.due = (hit_blocks, full)

    def stored(self, index: int, spans: Sequence[Span], start: int, stop: int) -> None:
        """Blocks got their keys."""
        self.kept(index, keys_of(spans, start, stop), start)

    def kept(self, index: int, keys: I64Array, start: int, mask: BoolArray | None = None) -> None:
        """Blocks from `start` on have been scheduled; those in `mask` (None: all) got these keys."""
        self._fit()
        request = self._living[index]
        self._ever[keys] = True
        first, last = request.due
        until = min(start + len(keys), last)
        if first < until:
            self._due[keys[max(first - start, 0) : until - start]] -= 1
            request.due = (until, last)
        if self._variants.active:
            self._variants.stored(index, keys if mask is None else np.where(mask, keys, 0), start)

    def preempted(self, index: int, done_tokens: int) -> None:
        """A request lost its blocks."""
        request = self._living[index]
        self._drop_due(request)
        self._come_back.add(index)
        request.done = max(request.done, done_tokens // self.block_size)

    def ended(self, index: int) -> None:
        """A request has ended."""
        self._drop_due(self._living.pop(index))
        self._come_back.discard(index)
        self._variants.ended(index)

    def _drop_due(self, request: _Living) -> None:
        first, last = request.due
        if first < last:
            self._due[keys_of(request.spans, first, last)] -= 1
        request.due = (0, 0)

    def _note_want(self, index: int, spans: Sequence[Span], full: int) -> None:
        _, now_s = self._now()
        number = self._admissions["row"].size
        self._admissions["row"].append(self.evictions)
        self._admissions["request"].append(index)
        self._admissions["time_s"].append(now_s)
        for first, base, length in spans:
            if first >= full:
                break
            self._wants["admission"].append(number)
            self._wants["base"].append(base)
            self._wants["length"].append(min(length, full - first))

    def _explain(self, index: int, request: _Living, hit: int, full: int, known_tokens: int) -> None:
        size, keys = self.block_size, keys_of(request.spans, hit, full)
        cached = self._keys.first_block[keys] > 0
        row, step, ever = self._last_row[keys], self._last_step[keys], self._ever[keys]
        cause = np.full(len(keys), NEVER_SEEN, dtype=np.int8)
        cause[ever] = NOT_KEPT
        cause[row >= 0] = EVICTED
        cause[self._due[keys] > 0] = NOT_COMPUTED_YET
        if request.done > hit:
            cause[: request.done - hit][ever[: request.done - hit]] = PREEMPTED
        cause[cached] = UNREACHABLE
        if full * size == known_tokens and (ever[-1] or self._due[keys[-1]] > 0):
            cause[-1] = CAP
        differs = np.zeros(len(keys), dtype=np.int8)
        if self._variants.active:
            unseen = np.flatnonzero(cause == NEVER_SEEN)
            if len(unseen):
                differs[unseen] = self._variants.differing(index, request.spans, hit, full)[unseen]
                cause[differs > 0] = KEY_DIFFERS
        self.missed_blocks += np.bincount(cause, minlength=len(CAUSES))
        if self._variants.active:
            self.differing_blocks += np.bincount(differs, minlength=len(KINDS) + 1)[1:]
        self._charge(cause, row, step)
        self._write(index, request.category, hit, cause, differs, row, step)

    def _charge(self, cause: npt.NDArray[np.int8], row: npt.NDArray[Any], step: npt.NDArray[Any]) -> None:
        """Charge misses to evictions; `row` and `step` become -1 where none is to blame."""
        at_gap = row[0], step[0]
        blamed = ((cause == EVICTED) | (cause == PREEMPTED)) & (row >= 0)
        row[~blamed] = step[~blamed] = -1
        recomputed = self._rows["recomputed"].values
        recomputed[row[blamed]] += self.block_size
        if blamed[0]:
            behind = cause == UNREACHABLE
            recomputed[at_gap[0]] += self.block_size * int(np.count_nonzero(behind))
            row[behind], step[behind] = at_gap

    def _write(
        self,
        index: int,
        category: str,
        first: int,
        cause: npt.NDArray[np.int8],
        differs: npt.NDArray[np.int8],
        row: npt.NDArray[Any],
        step: npt.NDArray[Any],
    ) -> None:
        """Rows of equal blocks."""
        now_step, now_s = self._now()
        new = (cause[1:] != cause[:-1]) | (differs[1:] != differs[:-1]) | (step[1:] != step[:-1])
        starts = [0, *(np.flatnonzero(new) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], len(cause)], strict=True):
            code, evicted = int(differs[start]), int(step[start])
            self._sink.row(
                "misses",
                (
                    now_s,
                    now_step,
                    index,
                    category,
                    first + start,
                    stop - start,
                    (stop - start) * self.block_size,
                    CAUSES[cause[start]],
                    KINDS[code - 1] if code else None,
                    int(row[start]) if evicted >= 0 else None,
                    evicted if evicted >= 0 else None,
                    self._step_times[evicted] if evicted >= 0 else None,
                ),
            )

    # ---- blocks ---------------------------------------------------------------------------------

    def evicted(self, blocks: I64Array, keys: I64Array, takers: Takers | None) -> None:
        """Blocks lost their keys; key 0 is one of a group that is not watched."""
        self._fit()
        count, first = len(blocks), self.evictions
        rows = np.arange(first, first + count)
        self.evictions = first + count
        self._rows["key"].extend(keys, count)
        self._rows["recomputed"].extend(0, count)
        self._leave(blocks, rows if takers is not None else np.full(count, first))
        self._last_row[keys] = rows
        if takers is None:
            step, now_s = self._now()
            self._last_step[keys] = step
            self._step_times[step] = now_s
        else:
            self._last_step[keys] = takers.steps
            self._step_times.update(zip(takers.steps, takers.times_s, strict=True))
        self._variants.evicted(keys)

    def left_free(self, blocks: I64Array) -> None:
        """Free blocks were hit."""
        self._leave(blocks, np.full(len(blocks), self.evictions))

    def entered_free(self, blocks: I64Array, keys: I64Array) -> None:
        """Blocks with keys are free."""
        self._free_since[blocks] = self.evictions
        self._free_key[blocks] = keys

    def _leave(self, blocks: I64Array, row: I64Array) -> None:
        since = self._free_since[blocks]
        stayed = (since >= 0) & (since < row)
        count = int(np.count_nonzero(stayed))
        if count:
            self._free["key"].extend(self._free_key[blocks[stayed]], count)
            self._free["from"].extend(since[stayed], count)
            self._free["to"].extend(row[stayed], count)
        self._free_since[blocks] = -1

    def _fit(self) -> None:
        size = self._keys.size
        if size > len(self._ever):
            self._ever = grown(self._ever, size)
            self._last_row = grown(self._last_row, size, -1)
            self._last_step = grown(self._last_step, size, -1)
            self._due = grown(self._due, size)

    def history(self) -> EvictionHistory:
        """What the cost of evictions is computed from; blocks that are free now stay so until the end."""
        still = np.flatnonzero(self._free_since >= 0)
        self._leave(still, np.full(len(still), self.evictions))
        wants = {name: column.values for name, column in self._wants.items()}
        starts = np.cumsum(wants["length"]) - wants["length"]
        total = int(wants["length"].sum())
        wanted = np.repeat((wants["base"] - starts).astype(np.int32), wants["length"])
        wanted += np.arange(total, dtype=np.int32)
        return EvictionHistory(
            block_size=self.block_size,
            keys=self._rows["key"].values,
            recomputed_tokens=self._rows["recomputed"].values,
            admission_rows=self._admissions["row"].values,
            admission_request=self._admissions["request"].values,
            admission_time_s=self._admissions["time_s"].values,
            wanted=wanted,
            wanted_admission=np.repeat(wants["admission"].astype(np.int32), wants["length"]),
            free=(self._free["key"].values, self._free["from"].values, self._free["to"].values),
        )
