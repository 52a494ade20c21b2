"""Requests that begin with one of a few system prompts and go on with text of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from workloads.distributions import Tokens, constant
from workloads.generators.common import PoolSize, Randomness, RequestParams, Streams, ZipfExponent
from workloads.generators.prompt import single_requests
from workloads.log import ReadLog
from workloads.spec import RequestSpec, Segment

NAME = "shared_prefix"
SUMMARY = "system prompts with Zipf popularity, each followed by a text of its own"


class Params(RequestParams):
    """Settings of `shared_prefix`."""

    prefixes: PoolSize = Field(default=10, description="number of different system prompts")
    prefix_zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of their popularity; 0 = all alike")
    prefix_tokens: Tokens = Field(default=constant(1024), description="length of a system prompt, drawn once for each")
    suffix_tokens: Tokens = Field(default=constant(256), description="length of a request's own text")
    output_tokens: Tokens = Field(default=constant(128), description="length of an answer")


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    lengths = random.pool("prefix lengths", params.prefix_tokens, params.prefixes, 1)
    systems, texts = Streams(random, "prefix"), Streams(random, "suffix")
    ranks = random.ranks("prefix popularity", params.prefixes, params.prefix_zipf)
    suffixes = random.draws("suffix lengths", params.suffix_tokens, 1)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        rank = next(ranks)
        yield request(
            [Segment(systems[rank], 0, lengths[rank]), Segment(texts[index], 0, next(suffixes))], next(outputs)
        )
