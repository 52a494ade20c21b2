"""The `prefix_repetition` data set of vLLM's serving benchmark: a few prefixes, each used equally often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from workloads.arrivals import AllAtOnce, Arrivals
from workloads.generators.common import PoolSize, Randomness, RequestParams, Streams, shuffled_groups
from workloads.generators.prompt import single_requests
from workloads.generators.vllm_random import Length
from workloads.log import ReadLog
from workloads.oneof import fault
from workloads.spec import RequestSpec, Segment

NAME = "vllm_prefix_repetition"
SUMMARY = "vLLM benchmark `prefix_repetition`: 10 prefixes of 256 tokens, suffixes of 256, 128 out"


class Params(RequestParams):
    """Settings of `vllm_prefix_repetition`; each prefix is used ``requests // prefixes`` times."""

    arrivals: Arrivals = Field(default=Arrivals(all_at_once=AllAtOnce()), description="when requests arrive")
    prefixes: PoolSize = Field(default=10, description="number of different prefixes")
    prefix_tokens: Length = Field(default=256, description="length of a prefix")
    suffix_tokens: Length = Field(default=256, description="length of a request's own text")
    output_tokens: Length = Field(default=128, description="length of an answer")
    shuffle: bool = Field(default=True, description="in random order; false: prefix after prefix")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.requests < self.prefixes:
            raise fault(f"requests ({self.requests}) must be at least as many as prefixes ({self.prefixes})")
        return self

    def expected_requests(self) -> int | None:
        """Every prefix equally often; what is left over is not made."""
        even = self.requests // self.prefixes * self.prefixes
        return even if self.arrivals.limit is None else min(even, self.arrivals.limit)


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    each, rest = divmod(params.requests, params.prefixes)
    if rest:
        log.note(
            f"{rest} of {params.requests:,} requests are not made: "
            f"each of {params.prefixes} prefixes is used {each:,} times"
        )
    groups = shuffled_groups(random.rng("order"), params.prefixes, each, params.shuffle)
    prefixes, texts = Streams(random, "prefix"), Streams(random, "suffix")
    for index, request in single_requests(random, params.arrivals, each * params.prefixes, log, prefix):
        shared = Segment(prefixes[next(groups)], 0, params.prefix_tokens)
        yield request([shared, Segment(texts[index], 0, params.suffix_tokens)], params.output_tokens)
