"""What each eviction cost, seen from the end of the run: when its content was wanted next, and who should have gone.

Everything is in *moments*: moment e is just before the e-th eviction.  A block that stayed free over
moments ``[from, to)`` was a possible victim of each of these evictions.  The best of them is the one
whose content was wanted last, or never: Belady's choice (IBM Systems Journal 5(2), 1966).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.recording.miss_tracker import EvictionHistory

I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]

CHUNK = 1 << 20
_LAST = np.iinfo(np.int64).max


class EvictionCosts(NamedTuple):
    """Columns of the table ``eviction_costs``; `next_admission` is the number of admissions where none came."""

    recomputed_tokens: I64Array
    next_admission: I64Array
    better_victim: npt.NDArray[np.bool_]


def costs_table(history: EvictionHistory, costs: EvictionCosts) -> dict[str, Any]:
    """The columns of the table ``eviction_costs``; null (NaN) where the content was not wanted again."""
    after = costs.next_admission
    again = after < len(history.admission_rows)
    request = np.full(len(after), np.nan)
    time_s = np.full(len(after), np.nan)
    request[again] = history.admission_request[after[again]]
    time_s[again] = history.admission_time_s[after[again]]
    return {
        "recomputed_tokens": costs.recomputed_tokens,
        "next_request_index": request,
        "next_wanted_s": time_s,
        "better_victim": costs.better_victim.astype(np.int64),
    }


class _Wants:
    """Answers when a key is wanted next.  Times are numbers of admissions; `never` comes after all."""

    def __init__(self, history: EvictionHistory) -> None:
        self.rows = history.admission_rows
        self.never = len(self.rows)
        stride = self._stride = self.never + 1
        self._sorted = np.empty(len(history.wanted) + 1, dtype=np.int64)
        np.multiply(history.wanted, stride, out=self._sorted[:-1], dtype=np.int64)
        self._sorted[:-1] += history.wanted_admission
        self._sorted[-1] = _LAST
        self._sorted.sort()

    def first_after(self, moment: I64Array) -> I64Array:
        """The first admission after the evictions of these moments."""
        return np.searchsorted(self.rows, moment, side="right")

    def places(self, keys: I64Array, admission: I64Array) -> I64Array:
        """Where the wants of each key from an admission on begin in the list of all wants, sorted by key."""
        return np.searchsorted(self._sorted, keys * self._stride + admission)

    def at(self, keys: I64Array, places: I64Array) -> I64Array:
        """The admission at a place of the list if it is of that key, else `never`."""
        key, admission = np.divmod(self._sorted[places], self._stride)
        return np.where(key == keys, admission, self.never)


def eviction_costs(history: EvictionHistory) -> EvictionCosts:
    """The cost of every eviction, row by row.

    An eviction had a better victim if it had a cost (`recomputed_tokens` > 0) and some other block with
    content was free before and after the taking that it was part of, whose content was wanted later
    than the evicted one's, or never.
    """
    wants = _Wants(history)
    count = len(history.keys)
    after = np.empty(count, dtype=np.int64)
    for start in range(0, count, CHUNK):
        keys = history.keys[start : start + CHUNK].astype(np.int64)
        rows = np.arange(start, start + len(keys))
        after[start : start + len(keys)] = wants.at(keys, wants.places(keys, wants.first_after(rows)))
    better = (history.recomputed_tokens > 0) & (latest_wanted(history, wants) > after)
    return EvictionCosts(history.recomputed_tokens, after, better)


def latest_wanted(history: EvictionHistory, wants: _Wants) -> I32Array:
    """At each moment, the latest next want among the blocks that stay free; -1 where none does."""
    parts = [
        _free_pieces(wants, *(column[at : at + CHUNK].astype(np.int64) for column in history.free))
        for at in range(0, len(history.free[0]), CHUNK)
    ]
    if not parts:
        return np.full(len(history.keys), -1, dtype=np.int32)
    begins, ends, value = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    del parts
    return max_of_ranges(len(history.keys), begins, ends, value)


def _free_pieces(wants: _Wants, keys: I64Array, start: I64Array, stop: I64Array) -> tuple[I32Array, I32Array, I32Array]:
    """Spans in which free blocks were wanted next by the same admission: from, to, and that admission.

    Most blocks stay free without anybody asking for them; the others change their next want on the way.
    """
    first = wants.places(keys, wants.first_after(start))
    last = wants.places(keys, wants.first_after(stop - 1))
    pieces = last - first + 1
    owner = np.repeat(np.arange(len(keys)), pieces)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    value = wants.at(keys[owner], first[owner] + number)
    ends = np.where(number < pieces[owner] - 1, np.append(wants.rows, 0)[value], stop[owner])
    begins = np.where(number > 0, np.roll(ends, 1), start[owner])
    filled = begins < ends
    return begins[filled].astype(np.int32), ends[filled].astype(np.int32), value[filled].astype(np.int32)


def max_of_ranges(size: int, start: I32Array, stop: I32Array, value: I32Array) -> I32Array:
    """For each point of ``0 … size - 1`` the largest value ≥ 0 of the ranges ``[start, stop)`` over it, -1 for none.

    Each range is covered by two of a power of two; these are handed down level by level:
    O(ranges + size · log size).
    """
    level = np.empty(len(start), dtype=np.int8)
    for at in range(0, len(start), CHUNK):
        part = slice(at, at + CHUNK)
        level[part] = np.frexp((stop[part] - start[part]).astype(np.float64))[1] - 1
    found = np.full(size, -1, dtype=np.int32)
    for power in range(int(level.max(initial=0)), -1, -1):
        here = np.flatnonzero(level == power)
        if len(here):
            np.maximum.at(found, start[here], value[here])
            np.maximum.at(found, stop[here] - (1 << power), value[here])
        if power:
            half = 1 << (power - 1)
            found[half:] = np.maximum(found[half:], found[:-half])
    return found
