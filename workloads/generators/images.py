"""Images of generators: a pool with Zipf popularity, and prompts made of text and images.

All images stand for the same placeholder tokens, as in real engines; only the identifier tells two
images of one size apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import Field

from workloads.distributions import MAX_POOL, Tokens, constant
from workloads.generators.common import Randomness, ZipfExponent
from workloads.log import ReadLog
from workloads.oneof import Strict
from workloads.spec import MultiModalItem, Piece, Segment, stream_id

PLACEHOLDER_STREAM = stream_id("image placeholder")
_TRIES = 64


class Image(NamedTuple):
    """An image: what identifies it and how many tokens it takes."""

    identifier: str
    tokens: int


class ImageParams(Strict):
    """Settings of a pool of images."""

    images: Annotated[int, Field(ge=1, le=MAX_POOL)] | None = Field(
        default=100, description="number of different images; null = every image is new"
    )
    image_zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of their popularity; 0 = all alike")
    tokens_per_image: Tokens = Field(default=constant(576), description="tokens of an image, drawn once for each")


class ImagePool:
    """Draws images: by popularity from a pool, or new ones only."""

    def __init__(self, params: ImageParams, random: Randomness, prefix: str, log: ReadLog) -> None:
        self._log = log
        self._prefix = prefix
        self._count = params.images
        self._new = 0
        if params.images is None:
            self._sizes = random.draws("image sizes", params.tokens_per_image, 1)
        else:
            self._pool = random.pool("image sizes", params.tokens_per_image, params.images, 1)
            self._ranks = random.ranks("image popularity", params.images, params.image_zipf)

    def draw(self, count: int) -> list[Image]:
        """`count` different images (all of the pool, if it has fewer)."""
        if self._count is None:
            self._new += count
            return [self._image(k, next(self._sizes)) for k in range(self._new - count, self._new)]
        chosen: dict[int, None] = {}
        if count > self._count:
            self._log.count(f"requests with fewer images than drawn: the pool has only {self._count}")
            count = self._count
        for _ in range(_TRIES * count):
            if len(chosen) == count:
                break
            chosen[next(self._ranks)] = None
        # A pool of which one image takes nearly all: the most popular others fill up.
        for rank in range(self._count):
            if len(chosen) == count:
                break
            chosen[rank] = None
        return [self._image(rank, self._pool[rank]) for rank in chosen]

    def _image(self, number: int, tokens: int) -> Image:
        return Image(f"{self._prefix}image{number}", tokens)


class Prompt:
    """A prompt under construction: text and images one after another."""

    def __init__(self, pieces: Iterable[Piece] = (), items: Iterable[MultiModalItem] = ()) -> None:
        self.pieces = list(pieces)
        self.items = list(items)
        self.tokens = sum(piece.length for piece in self.pieces)

    def add_text(self, piece: Piece) -> None:
        """Append text; an empty piece adds nothing."""
        if piece.length > 0:
            self.pieces.append(piece)
            self.tokens += piece.length

    def add_image(self, image: Image) -> None:
        """Append an image."""
        self.items.append(MultiModalItem(image.identifier, self.tokens, image.tokens))
        self.pieces.append(Segment(PLACEHOLDER_STREAM, 0, image.tokens))
        self.tokens += image.tokens
