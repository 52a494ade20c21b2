"""Single questions about images that come from a pool, as in product search or document reading."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from workloads.distributions import CountOrNone, Tokens, TokensOrNone, constant
from workloads.generators.common import Randomness, RequestParams, Streams
from workloads.generators.images import ImageParams, ImagePool
from workloads.generators.prompt import Prompt, single_requests
from workloads.log import ReadLog
from workloads.spec import RequestSpec, Segment

NAME = "multimodal"
SUMMARY = "questions about images from a pool with Zipf popularity"


class Params(ImageParams, RequestParams):
    """Settings of `multimodal`: system prompt, text, images with text between them, text."""

    images_per_request: CountOrNone = Field(
        default=constant(1), description="number of images of a request, all different"
    )
    system_tokens: TokensOrNone = Field(
        default=constant(64), description="length of the system prompt that all requests share; it is drawn once"
    )
    text_before_tokens: TokensOrNone = Field(
        default=constant(0), description="length of a request's own text before its images (hides them from the cache)"
    )
    text_between_tokens: TokensOrNone = Field(
        default=constant(0), description="length of a request's own text between two images"
    )
    text_after_tokens: Tokens = Field(default=constant(64), description="length of the question after the images")
    output_tokens: Tokens = Field(default=constant(128), description="length of an answer")


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    images = ImagePool(params, random, prefix, log)
    system = Segment(random.stream("system"), 0, random.pool("system length", params.system_tokens, 1)[0])
    counts = random.draws("images of a request", params.images_per_request)
    before = random.draws("text before", params.text_before_tokens)
    between = random.draws("text between", params.text_between_tokens)
    behind = random.draws("text after", params.text_after_tokens, 1)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    texts = Streams(random, "text")
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        text = texts[index]
        prompt = Prompt([system])
        own = next(before)
        prompt.add(Segment(text, 0, own))
        for position, image in enumerate(images.draw(next(counts))):
            gap = next(between) if position else 0
            prompt.add(Segment(text, own, gap))
            own += gap
            prompt.add_image(image)
        prompt.add(Segment(text, own, next(behind)))
        yield request(prompt, next(outputs))
