"""SGLang's `generated-shared-prefix` benchmark: groups of questions, each behind its group's system prompt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from workloads.arrivals import AllAtOnce, Arrivals
from workloads.generators.common import PoolSize, Randomness, Streams, shuffled_groups
from workloads.generators.prompt import single_requests
from workloads.generators.vllm_random import Length
from workloads.log import ReadLog
from workloads.oneof import Strict, fault
from workloads.spec import RequestSpec, Segment

NAME = "sglang_generated_shared_prefix"
SUMMARY = "SGLang benchmark: 64 groups × 16 prompts, system prompts of 2,048 tokens, questions of 128, 256 out"

MAX_REQUESTS = 10_000_000


class Params(Strict):
    """Settings of `sglang_generated_shared_prefix`; there are ``groups × prompts_per_group`` requests."""

    groups: PoolSize = Field(default=64, description="number of groups, each with a system prompt")
    prompts_per_group: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] = Field(
        default=16, description="requests of a group"
    )
    system_tokens: Length = Field(default=2048, description="length of a system prompt")
    question_tokens: Length = Field(default=128, description="length of a question")
    output_tokens: Length = Field(default=256, description="length of an answer")
    shuffle: bool = Field(default=True, description="in random order; false: group after group")
    arrivals: Arrivals = Field(default=Arrivals(all_at_once=AllAtOnce()), description="when requests arrive")

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if self.groups * self.prompts_per_group > MAX_REQUESTS:
            raise fault(f"groups × prompts_per_group must be at most {MAX_REQUESTS:,}")
        return self

    def expected_requests(self) -> int | None:
        """How many requests there will be."""
        count = self.groups * self.prompts_per_group
        return count if self.arrivals.limit is None else min(count, self.arrivals.limit)


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    order = shuffled_groups(random.rng("order"), params.groups, params.prompts_per_group, params.shuffle)
    systems, texts = Streams(random, "system"), Streams(random, "question")
    count = params.groups * params.prompts_per_group
    for index, request in single_requests(random, params.arrivals, count, log, prefix):
        system = Segment(systems[next(order)], 0, params.system_tokens)
        yield request([system, Segment(texts[index], 0, params.question_tokens)], params.output_tokens)
