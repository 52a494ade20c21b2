"""What a request is, before any engine sees it.

A prompt is a tuple of *pieces*.  Most are `Segment`: a slice of an endless, fixed *stream* of
tokens, named by an integer.  The same slice of the same stream is the same tokens wherever it
stands, two different streams share none, and no token is made until somebody needs one.  Real
token ids come as `TokenIds`.  What a request answers is a stream too (`answer_stream`), so a later
prompt can quote an answer as ``Segment(answer_stream, 0, n)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.errors import WorkloadError

_MASK = (1 << 64) - 1


def mix64(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection on 64-bit integers."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def stream_id(*parts: int | str) -> int:
    """A 63-bit stream number from any names and numbers, the same on every machine and run."""
    return int.from_bytes(blake2b(_text(parts).encode(), digest_size=8).digest(), "little") >> 1


def stream_ids(*scope: int | str) -> Callable[[int | str], int]:
    """What gives many numbers of one scope in half the time: ``stream_ids(a, b)(c) == stream_id(a, b, c)``."""
    begun = blake2b(f"{_text(scope)}\0".encode(), digest_size=8)

    def number(part: int | str) -> int:
        whole = begun.copy()
        whole.update((part if isinstance(part, str) else f"\x01{part}").encode())
        return int.from_bytes(whole.digest(), "little") >> 1

    return number


def _text(parts: tuple[int | str, ...]) -> str:
    return "\0".join([part if isinstance(part, str) else f"\x01{part}" for part in parts])


class Segment(NamedTuple):
    """Tokens ``start … start + length - 1`` of stream `stream`."""

    stream: int
    start: int
    length: int


class TokenIds(NamedTuple):
    """Literal token ids (int64, non-negative)."""

    ids: npt.NDArray[np.int64]

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.ids)


Piece = Segment | TokenIds


class MultiModalItem(NamedTuple):
    """An image (or other input) whose embeddings stand at ``[offset, offset + length)`` of the prompt, in tokens."""

    identifier: str
    offset: int
    length: int


class LoRA(NamedTuple):
    """A LoRA adapter: its name, its number (> 0) and its path."""

    name: str
    id: int
    path: str = ""


def merge_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same tokens with adjacent slices of one stream joined and empty pieces dropped.

    The engine's fingerprints rest on this form, so every `RequestSpec` stores it.
    """
    out: list[Piece] = []
    for piece in pieces:
        if piece.length <= 0:
            continue
        last = out[-1] if out else None
        if (
            isinstance(piece, Segment)
            and isinstance(last, Segment)
            and last.stream == piece.stream
            and last.start + last.length == piece.start
        ):
            out[-1] = Segment(last.stream, last.start, last.length + piece.length)
        else:
            out.append(piece)
    return tuple(out)


@dataclass(frozen=True, slots=True, eq=False)
class RequestSpec:
    """One request of a workload.  Lengths are tokens, times seconds since the workload's start.

    `output_tokens` is what the model really answers.  `max_tokens` is the client's cap, the only
    length that a scheduler may see; None = `output_tokens`, as benchmarks that ignore the end token do.
    `after` names the request whose end releases this one (a closed loop): it then arrives
    `delay_s` after that end, and not before `arrival_s`.  `abort_after_s` is the client's patience,
    counted from arrival.  `source` says where the request came from (``file:line``), for messages.
    """

    request_id: str
    arrival_s: float
    prompt: tuple[Piece, ...]
    output_tokens: int
    answer_stream: int
    max_tokens: int | None = None
    category: str = ""
    session: str | None = None
    turn: int = 0
    after: str | None = None
    delay_s: float = 0.0
    mm_items: tuple[MultiModalItem, ...] = ()
    lora: LoRA | None = None
    cache_salt: str | None = None
    priority: int = 0
    abort_after_s: float | None = None
    source: str = ""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum([piece.length for piece in self.prompt])


def stream_tokens(stream: int, start: int, length: int) -> npt.NDArray[np.int64]:
    """Token ids ``start … start + length - 1`` of a stream, each in ``[0, 2**31)``."""
    positions = np.arange(start, start + length, dtype=np.uint64)
    value = positions * np.uint64(0x9E3779B97F4A7C15) + np.uint64(mix64(stream))
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((value ^ (value >> np.uint64(31))) >> np.uint64(33)).astype(np.int64)


def prompt_tokens(pieces: Iterable[Piece]) -> npt.NDArray[np.int64]:
    """The token ids of a prompt."""
    arrays = [p.ids if isinstance(p, TokenIds) else stream_tokens(*p) for p in pieces]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def check_spec(spec: RequestSpec) -> None:
    """Raise `WorkloadError` when a request contradicts itself (not when it merely cannot be served).

    Items must be sorted by offset, not overlap, lie within the prompt and have positive lengths.
    """
    where = f" ({spec.source})" if spec.source else ""
    total = spec.prompt_tokens
    end = 0
    for item in spec.mm_items:
        if item.length <= 0 or item.offset < end or item.offset + item.length > total:
            raise WorkloadError(
                f"request {spec.request_id}{where}: multimodal item {item.identifier!r} at "
                f"[{item.offset}, {item.offset + item.length}) must be longer than 0, follow the item before it "
                f"(which ends at {end}) and lie within the prompt of {total} tokens"
            )
        end = item.offset + item.length
