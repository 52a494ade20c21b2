"""Prompts under construction, and the requests made of them: single ones and sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from workloads.arrivals import Arrivals, Release
from workloads.generators.common import Randomness, Streams
from workloads.log import ReadLog
from workloads.spec import MultiModalItem, Piece, RequestSpec, Segment, merge_pieces, stream_id

PLACEHOLDER_STREAM = stream_id("image placeholder")
"""All images stand for these tokens, as in real engines; only the identifier tells two of one size apart."""

MAX_TURNS = 1 << 20


class Image(NamedTuple):
    """An image: what identifies it and how many tokens it takes."""

    identifier: str
    tokens: int


class Prompt:
    """Text and images one after another."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self.pieces: list[Piece] = []
        self.items: list[MultiModalItem] = []
        self.tokens = 0
        for piece in pieces:
            self.add(piece)

    def add(self, piece: Piece) -> None:
        """Append text; an empty piece adds nothing."""
        if piece.length > 0:
            self.pieces.append(piece)
            self.tokens += piece.length

    def add_image(self, image: Image) -> None:
        """Append an image."""
        self.items.append(MultiModalItem(image.identifier, self.tokens, image.tokens))
        self.add(Segment(PLACEHOLDER_STREAM, 0, image.tokens))


class Session(Prompt):
    """A conversation that grows: each request's prompt is all that was added so far.

    Each request follows the one before it, and answers can be quoted.
    """

    def __init__(self, name: str, number: int, release: Release, answers: Streams) -> None:
        super().__init__()
        self.name = name
        self.number = number
        self.arrival_s = release.arrival_s
        self.turn = 0
        self.last_id = ""
        self._release = release
        self._answers = answers

    def request(self, output_tokens: int, delay_s: float = 0.0, after: str | None = None) -> RequestSpec:
        """The next request; it arrives `delay_s` after the end of `after` (None: of the last one)."""
        release = Release(self.arrival_s, after or self.last_id, delay_s) if self.turn else self._release
        self.last_id = f"{self.name}.{self.turn}"
        self.turn += 1
        return RequestSpec(
            request_id=self.last_id,
            arrival_s=release.arrival_s,
            prompt=merge_pieces(self.pieces),
            output_tokens=output_tokens,
            answer_stream=self._answer(),
            session=self.name,
            turn=self.turn - 1,
            after=release.after,
            delay_s=release.delay_s,
            mm_items=tuple(self.items),
        )

    def last_answer(self, output_tokens: int, skip: int = 0) -> Segment:
        """The answer of the last request, without its first `skip` tokens."""
        return Segment(self._answer(), skip, output_tokens - skip)

    def _answer(self) -> int:
        return self._answers[self.number * MAX_TURNS + self.turn - 1]


def single_requests(
    random: Randomness, arrivals: Arrivals, count: int, log: ReadLog, prefix: str
) -> Iterator[tuple[int, Callable[..., RequestSpec]]]:
    """Up to `count` requests that are independent of each other.

    Yields the index of each and a function that makes it from its pieces (or `Prompt`), the length of its
    answer and whatever other fields of `RequestSpec` it has.
    """
    answers = Streams(random, "answer")
    for index, release, source in random.releases(arrivals, count, log):
        request_id = f"{prefix}{index}"
        source.ended(request_id)
        yield index, partial(_single, request_id, release, answers[index])


def _single(
    request_id: str,
    release: Release,
    answer: int,
    prompt: Prompt | Iterable[Piece],
    output_tokens: int,
    **fields: object,
) -> RequestSpec:
    pieces = prompt
    if isinstance(prompt, Prompt):
        pieces = prompt.pieces
        fields["mm_items"] = tuple(prompt.items)
    return RequestSpec(
        request_id=request_id,
        arrival_s=release.arrival_s,
        prompt=merge_pieces(pieces),  # type: ignore[arg-type]
        output_tokens=output_tokens,
        answer_stream=answer,
        after=release.after,
        delay_s=release.delay_s,
        **fields,  # type: ignore[arg-type]
    )
