"""Fingerprints of prefixes: which blocks of two requests hold the same content, without making a token.

``prefix_fingerprints(...)[k]`` identifies the whole prefix up to and including block k: its tokens
and all that a block key must tell apart (LoRA, images, salt).  Equal prefixes have equal
fingerprints however their pieces were cut; different ones differ but for a chance of about
n² / 2⁶⁵ among n blocks (2·10⁻⁶ for nine million), where a real engine relies on a hash too.

The chain is a wrapping sum: ``H[k] = Σ_{i ≤ k} mix64(content_i + mix64(i))``, so it is one pass of
vector operations; all numbers are unsigned 64-bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from workloads.compiled import load
from workloads.spec import LoRA, MultiModalItem, Piece, RequestSpec, Segment, TokenIds, merge_pieces, mix64, stream_id

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_U = np.uint64
U64Array = npt.NDArray[np.uint64]
_KERNEL = load("workloads._kernel")


_INCREMENT, _FACTOR_1, _FACTOR_2 = _U(_GOLDEN), _U(0xBF58476D1CE4E5B9), _U(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_27, _SHIFT_31 = _U(30), _U(27), _U(31)


def mix64_array(value: U64Array) -> U64Array:
    """`mix64` of every element; the argument is left alone."""
    return _finish(value + _INCREMENT)


def _finish(value: U64Array) -> U64Array:
    """`mix64` of every element but for the first addition, in place."""
    shifted = value >> _SHIFT_30
    value ^= shifted
    value *= _FACTOR_1
    np.right_shift(value, _SHIFT_27, out=shifted)
    value ^= shifted
    value *= _FACTOR_2
    np.right_shift(value, _SHIFT_31, out=shifted)
    value ^= shifted
    return value


class _Table:
    """``function(i)`` for i = 0, 1, … as far as was asked for: pure, so that sharing it is safe."""

    def __init__(self, function: Callable[[U64Array], U64Array]) -> None:
        self._function = function
        self._values = function(np.arange(1024, dtype=np.uint64))

    def first(self, count: int) -> U64Array:
        """The first `count` values; not to be changed."""
        if count > len(self._values):
            self._values = self._function(np.arange(max(count, 2 * len(self._values)), dtype=np.uint64))
        return self._values[:count]


# what depends on a block's place: mix64(i), with the addition that begins the chain's own mix64
_PLACES = _Table(lambda index: mix64_array(index) + _INCREMENT)


@cache
def _steps(block_size: int) -> _Table:
    """What the i-th next block of a stream adds to the first one's term."""
    step = _U(block_size * _GOLDEN & _MASK)
    return _Table(lambda index: index * step)


def prefix_fingerprints(
    pieces: Iterable[Piece],
    block_size: int,
    *,
    lora: LoRA | None = None,
    mm_items: Sequence[MultiModalItem] = (),
    cache_salt: str | None = None,
) -> U64Array:
    """Fingerprint of every full block of `block_size` tokens.

    Args:
        pieces: the tokens, merged as `merge_pieces` leaves them (a prompt, or prompt and answer).
        block_size: tokens of a block, > 0.
        lora, mm_items, cache_salt: as in `RequestSpec`.

    Returns:
        uint64 array of length ``tokens // block_size``.
    """
    flat = list(pieces)
    blocks = sum([piece.length for piece in flat]) // block_size
    content = np.zeros(blocks, dtype=np.uint64)
    segments = [piece for piece in flat if isinstance(piece, Segment)]
    if _KERNEL is not None and len(segments) == len(flat):
        _KERNEL.add_segments(content, segments, block_size)
    else:
        _add_pieces(content, flat, block_size)
    _add_extra_keys(content, block_size, lora, mm_items, cache_salt)
    if _KERNEL is not None:
        _KERNEL.chain(content)
        return content
    content += _PLACES.first(blocks)
    return np.cumsum(_finish(content), dtype=np.uint64)


def _add_pieces(content: U64Array, pieces: list[Piece], block_size: int) -> None:
    """Add the terms of tokens to those of their blocks."""
    blocks = len(content)
    step = _steps(block_size).first(blocks)
    at = 0
    for piece in pieces:
        if at >= blocks * block_size:
            break
        if isinstance(piece, TokenIds):
            _add_token_ids(content, piece, at, block_size)
        else:
            base = mix64(piece.stream & _MASK)
            first = -(-at // block_size)
            last = min((at + piece.length) // block_size, blocks)
            if last > first:
                start = piece.start + first * block_size - at
                np.add(step[: last - first], _U((base + start * _GOLDEN) & _MASK), out=content[first:last])
            else:
                last = first
            head = min(first * block_size, at + piece.length)
            for begin, end in ((at, head), (max(last * block_size, head), at + piece.length)):
                block, offset = divmod(begin, block_size)
                if end > begin and block < blocks:
                    value = mix64((base + (piece.start + begin - at) * _GOLDEN) & _MASK)
                    value = mix64(value ^ (offset << 32 | (end - begin)))
                    _add(content, block, value)
        at += piece.length


def answer_tokens(spec: RequestSpec) -> int:
    """The longest answer that a request can get, tokens."""
    return spec.output_tokens if spec.max_tokens is None else min(spec.output_tokens, spec.max_tokens)


def sequence_fingerprints(spec: RequestSpec, block_size: int) -> U64Array:
    """Fingerprints of all full blocks that a request can come to have: those of its prompt and its answer."""
    return prefix_fingerprints(
        merge_pieces((*spec.prompt, Segment(spec.answer_stream, 0, answer_tokens(spec)))),
        block_size,
        lora=spec.lora,
        mm_items=spec.mm_items,
        cache_salt=spec.cache_salt,
    )


Fingerprints = Callable[[RequestSpec, int], U64Array]
"""`sequence_fingerprints`, or what knows its results already: from a request and a block size."""


def _add(content: U64Array, block: int, value: int) -> None:
    """Add to one block's term, modulo 2⁶⁴ (a scalar addition in numpy would warn)."""
    content[block] = _U((int(content[block]) + value) & _MASK)


def _add_token_ids(content: U64Array, piece: TokenIds, at: int, block_size: int) -> None:
    """Add the terms of literal tokens: each token is a piece of its own, at its offset in the block."""
    keep = min(piece.length, len(content) * block_size - at)
    positions = np.arange(at, at + keep, dtype=np.uint64)
    offsets = positions % _U(block_size)
    values = mix64_array(mix64_array(piece.ids[:keep].astype(np.uint64)) ^ (offsets << _U(32) | _U(0xFFFFFFFF)))
    np.add.at(content, (positions // _U(block_size)).astype(np.int64), values)


def _add_extra_keys(
    content: U64Array, block_size: int, lora: LoRA | None, mm_items: Sequence[MultiModalItem], cache_salt: str | None
) -> None:
    """Add what a block key holds besides tokens."""
    if not len(content):
        return
    if lora is not None:
        content += _U(stream_id("lora", lora.name, lora.path))
    if cache_salt:
        _add(content, 0, stream_id("cache_salt", cache_salt))
    for item in mm_items:
        first = item.offset // block_size
        last = min((item.offset + item.length - 1) // block_size, len(content) - 1)
        for block in range(first, last + 1):
            _add(content, block, stream_id("mm", item.identifier, item.offset - block * block_size))
