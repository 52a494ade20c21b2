"""Making requests fit the longest context that a model takes: by cutting, by scaling, or by leaving them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from workloads.log import ReadLog
from workloads.spec import MultiModalItem, Piece, RequestSpec, TokenIds, merge_pieces

Items = tuple[MultiModalItem, ...]


def needed_tokens(spec: RequestSpec) -> int:
    """The longest that prompt and answer together can become."""
    return spec.prompt_tokens + (spec.output_tokens if spec.max_tokens is None else spec.max_tokens)


def fit_length(
    specs: Iterable[RequestSpec], max_model_len: int, how: Literal["cap", "drop"], log: ReadLog
) -> Iterator[RequestSpec]:
    """Requests such that prompt and answer together are at most `max_model_len` tokens.

    ``cap``: the answer may have what the prompt leaves, but at least half of the length if it wants it; the prompt
    is cut at its end to the rest.  ``drop``: the request is left out, and with it all that follow it.

    A later turn still quotes the answer as it was meant to be; what a cap took from it is then text that
    no engine has seen.  An image that a cut would divide is left out with all behind it.
    """
    dropped: set[str] = set()
    for spec in specs:
        prompt = spec.prompt_tokens
        output = needed_tokens(spec) - prompt
        if spec.after in dropped:
            dropped.add(spec.request_id)
            log.skip("follows a request that was left out", 1, spec.source)
        elif prompt + output <= max_model_len:
            yield spec
        elif how == "drop":
            dropped.add(spec.request_id)
            log.skip(f"longer than max_model_len {max_model_len:,}", 1, spec.source)
        else:
            room = max(1, min(output, max(max_model_len - prompt, max_model_len // 2)))
            pieces, items = _cut(spec.prompt, spec.mm_items, max_model_len - room)
            if not pieces:
                dropped.add(spec.request_id)
                log.skip(f"nothing is left when cut to max_model_len {max_model_len:,}", 1, spec.source)
                continue
            if sum(piece.length for piece in pieces) < prompt:
                log.count(f"prompts cut to fit max_model_len {max_model_len:,}", 1, spec.source)
            if output > room:
                log.count(f"answers cut to fit max_model_len {max_model_len:,}", 1, spec.source)
            if len(items) < len(spec.mm_items):
                log.count("images cut off with their prompt", len(spec.mm_items) - len(items), spec.source)
            yield replace(
                spec,
                prompt=pieces,
                mm_items=items,
                output_tokens=min(spec.output_tokens, room),
                max_tokens=None if spec.max_tokens is None else min(spec.max_tokens, room),
            )


def scale_lengths(
    specs: Iterable[RequestSpec], peek: Callable[[], Iterable[RequestSpec]], max_model_len: int, log: ReadLog
) -> Iterator[RequestSpec]:
    """Requests with all lengths multiplied by the one factor with which the longest just fits.

    What prompts shared they still share: a token of a stream moves to the same place in every prompt.
    Literal token ids are thinned out evenly.  An image has the same length wherever it returns.  No
    prompt, image or answer vanishes, so a prompt of many tiny images may still be too long.

    Args:
        specs: the requests.
        peek: opens the same stream once more, to find the longest one first.
        max_model_len: tokens of prompt and answer together.
        log: is told the factor.
    """
    longest = max(map(needed_tokens, peek()), default=0)
    if longest <= max_model_len:
        yield from specs
        return
    factor = max_model_len / longest
    log.note(
        f"all lengths were multiplied by {factor:.4g}, so that the longest request ({longest:,} tokens) "
        f"fits max_model_len {max_model_len:,}"
    )
    for spec in specs:
        pieces, items = _scaled(spec.prompt, spec.mm_items, factor)
        yield replace(
            spec,
            prompt=pieces,
            mm_items=items,
            output_tokens=_scaled_length(spec.output_tokens, factor),
            max_tokens=None if spec.max_tokens is None else _scaled_length(spec.max_tokens, factor),
        )


def _scaled_length(length: int, factor: float) -> int:
    """A length times the factor, rounded down; nothing that was there vanishes."""
    return max(int(length * factor), min(length, 1))


def _scaled(pieces: tuple[Piece, ...], items: Items, factor: float) -> tuple[tuple[Piece, ...], Items]:
    out: list[Piece] = []
    moved = []
    at = length = 0
    for item in items:
        text = _scaled_text(pieces, at, item.offset, factor)
        length += sum(piece.length for piece in text)
        tokens = _scaled_length(item.length, factor)
        out += text
        out += _part(pieces, item.offset, item.offset + tokens)
        moved.append(MultiModalItem(item.identifier, length, tokens))
        length += tokens
        at = item.offset + item.length
    out += _scaled_text(pieces, at, sum(piece.length for piece in pieces), factor)
    return merge_pieces(out) or _part(pieces, 0, 1), tuple(moved)


def _scaled_text(pieces: Iterable[Piece], start: int, end: int, factor: float) -> list[Piece]:
    """Tokens ``[start, end)`` of a prompt, scaled.

    A literal token stays where its place times the factor passes a whole number.
    """
    out: list[Piece] = []
    at = start
    for piece in _part(pieces, start, end):
        if isinstance(piece, TokenIds):
            steps = np.floor(np.arange(at, at + piece.length + 1) * factor)
            out.append(TokenIds(piece.ids[np.diff(steps) > 0]))
        else:
            first, last = int(piece.start * factor), int((piece.start + piece.length) * factor)
            out.append(piece._replace(start=first, length=last - first))
        at += piece.length
    return [piece for piece in out if piece.length > 0]


def _cut(pieces: Iterable[Piece], items: Items, length: int) -> tuple[tuple[Piece, ...], Items]:
    """The first `length` tokens, or fewer where an image would be divided."""
    for item in items:
        if item.offset < length < item.offset + item.length:
            length = item.offset
    return _part(pieces, 0, length), tuple(item for item in items if item.offset + item.length <= length)


def _part(pieces: Iterable[Piece], start: int, end: int) -> tuple[Piece, ...]:
    """Tokens ``[start, end)`` of a prompt."""
    out: list[Piece] = []
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), min(end - at, piece.length)
        if first < last:
            if isinstance(piece, TokenIds):
                out.append(TokenIds(piece.ids[first:last]))
            else:
                out.append(piece._replace(start=piece.start + first, length=last - first))
        at += piece.length
    return tuple(out)
