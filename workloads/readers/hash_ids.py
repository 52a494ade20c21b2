"""Block ids of a trace as pieces of a prompt, and the check that their count fits the lengths."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from workloads.readers.rows import Fault
from workloads.spec import Piece, Segment, merge_pieces, mix64, stream_id

# Ids up to here are places in one stream, so consecutive ones join; larger ones (content hashes of
# 64 bits and more) get a stream each.
MAX_PLACED_ID = 1 << 40
_tuple = tuple.__new__  # makes a `Segment` in half the time of its own constructor


def check_ids(value: Any, name: str = "hash_ids") -> list[int]:
    """The list of ids of a row.

    Raises:
        Fault: no list, or something in it that is no whole number ≥ 0.
    """
    if not isinstance(value, list):
        raise Fault(f"{name} is {str(value)[:40]!r}; it must be a list of whole numbers", f"wrong {name}")
    if value and set(map(type, value)) != {int}:
        at = next(i for i, item in enumerate(value) if type(item) is not int)
        raise Fault(
            f"{name}[{at}] is {str(value[at])[:40]!r} ({type(value[at]).__name__}); ids are whole numbers, 0 or more",
            f"wrong {name}",
        )
    if value and min(value) < 0:
        raise Fault(f"{name} holds {min(value)}; ids are whole numbers, 0 or more", f"wrong {name}")
    return value


def checked_runs(value: Any, name: str = "hash_ids") -> list[tuple[int, int]]:
    """`runs_of` the list of ids of a row, checked as `check_ids` does."""
    if type(value) is not list or (value and set(map(type, value)) != {int}):
        check_ids(value, name)
    runs = runs_of(value)
    for first, _ in runs:
        if first < 0:
            check_ids(value, name)
    return runs


def runs_of(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive ids as (first, count)."""
    out: list[tuple[int, int]] = []
    if not ids:
        return out
    first = previous = ids[0]
    for number in ids[1:]:
        if number != previous + 1:
            out.append((first, previous - first + 1))
            first = number
        previous = number
    out.append((first, previous - first + 1))
    return out


def run_pieces(
    runs: Sequence[tuple[int, int]], stream: int, block_size: int, length: int, tail_stream: int
) -> tuple[Piece, ...]:
    """The prompt of `length` tokens that these runs of ids stand for.

    Id i is tokens ``[i·block_size, (i+1)·block_size)`` of `stream`; the last block may be partial.
    What the ids do not reach (formats that give ids to full blocks only) is unique: `tail_stream`.
    """
    pieces: list[Piece] = []
    left = length
    merged, end = True, -1  # whether the pieces are as `merge_pieces` would leave them, and where the last run ended
    for first, count in runs:
        if first + count <= MAX_PLACED_ID:
            size = count * block_size
            if size > left:
                size = left
            if size <= 0 or first == end:
                merged = False
            pieces.append(_tuple(Segment, (stream, first * block_size, size)))
            left -= size
            end = first + count
            continue
        merged = False
        for number in range(first, first + count):
            size = min(block_size, left)
            pieces.append(Segment(mix64(stream ^ stream_id("id", number)) >> 1, 0, size))
            left -= size
    if left > 0:
        pieces.append(Segment(tail_stream, 0, left))
    return tuple(pieces) if merged else merge_pieces(pieces)


class IdCount:
    """Checks the number of ids against the prompt's length, and finds the block size that would fit a whole file.

    With `partial`, the last block has an id even if it is not full: ``ceil(length / block_size)`` ids;
    without, ``length // block_size``.
    """

    def __init__(self, block_size: int, *, partial: bool, setting: str = "hash_block_size") -> None:
        self.block_size = block_size
        self.partial = partial
        self.setting = setting
        self.impossible: list[int] = []
        self._seen = array("q")  # length, given, length, given, … of all rows, for `hint`
        self.wrong = 0

    @property
    def rows(self) -> int:
        """Rows checked so far."""
        return len(self._seen) // 2

    def _fits(self, partial: bool) -> tuple[int, int]:
        """The least and the largest block size that fit every row; the first is larger when none does."""
        lows, highs = [1], [1 << 40]
        for length, given in zip(self._seen[::2], self._seen[1::2], strict=True):
            low, high = fitting(length, given, partial)
            lows.append(low)
            highs.append(high)
        return max(lows), min(highs)

    def expected(self, length: int) -> int:
        """How many ids a prompt of this length has."""
        return -(-length // self.block_size) if self.partial else length // self.block_size

    def check(self, number: int, length: int, given: int) -> None:
        """Check one row.

        Raises:
            Fault: with the count expected and given, the setting, and the sizes that would fit this line.
        """
        self._seen.append(length)
        self._seen.append(given)
        if given == (-(-length // self.block_size) if self.partial else length // self.block_size):
            return
        low, high = fitting(length, given, self.partial)
        if low > high:
            self.impossible.append(number)
        self.wrong += 1
        rule = "ceil(length / size)" if self.partial else "floor(length / size)"
        if low > high:
            remedy = "no size fits this line"
        else:
            remedy = f"this line fits {low}" if low == high else f"this line fits sizes {low} to {_size(high)}"
        raise Fault(
            f"{length} prompt tokens need {self.expected(length)} hash_ids at {self.setting} {self.block_size} "
            f"({rule}), but there are {given}; {remedy}",
            "hash_ids contradict the length",
        )

    def hint(self) -> str:
        """After all rows: the size that would fit the whole file, or that none does; "" if all counts are right."""
        if not self.wrong:
            return ""
        low, high = self._fits(self.partial)
        if low <= high:
            size = _best(low, high)
            return f"set {self.setting} to {size}: it fits all {self.rows:,} rows{_span(low, high)}"
        other_low, other_high = self._fits(not self.partial)
        if other_low <= other_high:
            size = _best(other_low, other_high)
            what = "full blocks only (floor)" if self.partial else "the partial last block too (ceil)"
            option = "full" if self.partial else "ceil"
            return (
                f"no {self.setting} fits every line, but ids for {what} of {size} tokens would: "
                f"set {self.setting} to {size} and partial_block to {option!r}"
            )
        one = f" (line {self.impossible[0]} fits none at all)" if self.impossible else ""
        return f"no {self.setting} fits every line{one}; the ids contradict the lengths, so the file is damaged"


def fitting(length: int, given: int, partial: bool) -> tuple[int, int]:
    """Smallest and largest block size at which `length` tokens have `given` ids; (1, 0) if none."""
    top = 1 << 40
    if partial:
        if given == 0 or length == 0:
            return (1, top) if length == given else (1, 0)
        low = -(-length // given)
        high = top if given == 1 else -(-length // (given - 1)) - 1
    else:
        low = length // (given + 1) + 1
        high = top if given == 0 else length // given
    return (max(low, 1), high) if 1 <= max(low, 1) <= high else (1, 0)


def _size(high: int) -> str:
    return "any larger" if high >= 1 << 40 else str(high)


def _span(low: int, high: int) -> str:
    return "" if low == high else f" (as does any from {low} to {_size(high)})"


def _best(low: int, high: int) -> int:
    """A power of two in the range, if there is one: publishers use these."""
    power = 1 << (low - 1).bit_length()
    return power if power <= high else low
