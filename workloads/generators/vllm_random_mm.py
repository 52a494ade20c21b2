"""The `random-mm` data set of vLLM's serving benchmark: random prompts with new images of a few sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from workloads.arrivals import AllAtOnce, Arrivals
from workloads.distributions import Distribution, Uniform
from workloads.generators.common import Randomness, RequestParams, Streams
from workloads.generators.prompt import Image, Prompt, single_requests
from workloads.generators.vllm_random import RandomLengths
from workloads.log import ReadLog
from workloads.oneof import Strict, fault, not_empty
from workloads.spec import RequestSpec, Segment

NAME = "vllm_random_mm"
SUMMARY = "vLLM benchmark `random-mm`: random prompts, each with new images of 256² or 720×1280 pixels"

Pixels = Annotated[int, Field(ge=1, le=100_000)]


class Bucket(Strict):
    """Images of one size."""

    height_px: Pixels = Field(description="height in pixels")
    width_px: Pixels = Field(description="width in pixels")
    weight: Annotated[float, Field(ge=0, le=1e9)] = Field(description="share of images of this size, up to a factor")

    def tokens(self, px_per_token: int) -> int:
        """Tokens of such an image when one stands for a square of `px_per_token` pixels a side, rounded."""
        sides = (max(1, round(side / px_per_token)) for side in (self.height_px, self.width_px))
        return math.prod(sides)


class Params(RandomLengths, RequestParams):
    """Settings of `vllm_random_mm`: the text first, then the images, no two of which are the same."""

    arrivals: Arrivals = Field(default=Arrivals(all_at_once=AllAtOnce()), description="when requests arrive")
    items_per_request: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=1, description="centre of the number of images of a request"
    )
    items_range_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="that number is uniform from (1 − this) to (1 + this) times its centre"
    )
    buckets: Annotated[tuple[Bucket, ...], Field(strict=False, max_length=1000), AfterValidator(not_empty)] = Field(
        default=(Bucket(height_px=256, width_px=256, weight=0.5), Bucket(height_px=720, width_px=1280, weight=0.5)),
        description="the sizes of images",
    )
    px_per_token: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=28, description="side in pixels of the square that becomes one token (28: Qwen2-VL and Qwen2.5-VL)"
    )

    @model_validator(mode="after")
    def _has_weight(self) -> Self:
        if sum(bucket.weight for bucket in self.buckets) <= 0:
            raise fault("the weights of buckets must add up to more than 0")
        return self


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    shared = Segment(random.stream("prefix"), 0, params.prefix_tokens)
    inputs = random.draws("input lengths", params.spread(params.input_tokens), 1)
    outputs = random.draws("output lengths", params.spread(params.output_tokens), 1)
    centre, ratio = params.items_per_request, params.items_range_ratio
    spread = Uniform(min=math.floor(centre * (1 - ratio)), max=math.ceil(centre * (1 + ratio)))
    counts = random.draws("images of a request", Distribution(uniform=spread))
    weights = np.array([bucket.weight for bucket in params.buckets])
    sizes = [bucket.tokens(params.px_per_token) for bucket in params.buckets]
    choice = random.rng("image sizes")
    texts = Streams(random, "text")
    made = 0
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        prompt = Prompt([shared, Segment(texts[index], 0, next(inputs))])
        for bucket in choice.choice(len(sizes), next(counts), p=weights / weights.sum()).tolist():
            prompt.add_image(Image(f"{prefix}image{made}", sizes[bucket]))
            made += 1
        yield request(prompt, next(outputs))
