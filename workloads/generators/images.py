"""Images of generators: a pool with Zipf popularity, or new ones only."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workloads.distributions import MAX_POOL, Tokens, constant
from workloads.generators.common import Randomness, ZipfExponent, distinct
from workloads.generators.prompt import Image
from workloads.log import ReadLog
from workloads.oneof import Strict


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
        if count > self._count:
            self._log.count(f"requests with fewer images than drawn: the pool has only {self._count}")
            count = self._count
        return [self._image(rank, self._pool[rank]) for rank in distinct(self._ranks, count, self._count)]

    def _image(self, number: int, tokens: int) -> Image:
        return Image(f"{self._prefix}image{number}", tokens)
