"""The `random` data set of vLLM's serving benchmark: prompts of random tokens, with a fixed prefix if asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from workloads.arrivals import AllAtOnce, Arrivals
from workloads.distributions import MAX_TOKENS, Distribution, Uniform
from workloads.generators.common import Randomness, RequestParams, Streams
from workloads.generators.prompt import single_requests
from workloads.log import ReadLog
from workloads.oneof import Strict
from workloads.spec import RequestSpec, Segment

NAME = "vllm_random"
SUMMARY = "vLLM benchmark `random`: 1,024 tokens in, 128 out, nothing shared"

Length = Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class RandomLengths(Strict):
    """Lengths as the benchmark states them: a centre and a relative half-width."""

    prefix_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = Field(
        default=0, description="length of a prefix that all prompts share, before input_tokens"
    )
    input_tokens: Length = Field(default=1024, description="centre of the length of a prompt, without the prefix")
    output_tokens: Length = Field(default=128, description="centre of the length of an answer")
    range_ratio: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="lengths are uniform from (1 − this) to (1 + this) times their centre"
    )

    def spread(self, centre: int) -> Distribution:
        """The distribution of a length."""
        low, high = math.floor(centre * (1 - self.range_ratio)), math.ceil(centre * (1 + self.range_ratio))
        return Distribution(uniform=Uniform(min=max(low, 1), max=high))


class Params(RandomLengths, RequestParams):
    """Settings of `vllm_random`."""

    arrivals: Arrivals = Field(default=Arrivals(all_at_once=AllAtOnce()), description="when requests arrive")


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    shared = Segment(random.stream("prefix"), 0, params.prefix_tokens)
    inputs = random.draws("input lengths", params.spread(params.input_tokens), 1)
    outputs = random.draws("output lengths", params.spread(params.output_tokens), 1)
    texts = Streams(random, "text")
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        yield request([shared, Segment(texts[index], 0, next(inputs))], next(outputs))
