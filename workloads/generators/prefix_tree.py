"""Prompts that branch like a tree: tools, then a system prompt, then a user, then text of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from workloads.distributions import MAX_POOL, Tokens, constant
from workloads.generators.common import PoolSize, Randomness, RequestParams, Streams, ZipfExponent
from workloads.generators.prompt import single_requests
from workloads.log import ReadLog
from workloads.oneof import Strict, fault, not_empty
from workloads.spec import Piece, RequestSpec, Segment

NAME = "prefix_tree"
SUMMARY = "prefixes that branch: tools, then system prompts, then users, then a text of its own"


class Level(Strict):
    """One level of the tree."""

    children: PoolSize = Field(description="number of branches under each branch of the level above")
    tokens: Tokens = Field(description="length of a branch, drawn once for each")
    zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of the popularity among siblings")


class Params(RequestParams):
    """Settings of `prefix_tree`."""

    levels: Annotated[tuple[Level, ...], Field(strict=False, max_length=16), AfterValidator(not_empty)] = Field(
        default=(
            Level(children=3, tokens=constant(2048)),
            Level(children=5, tokens=constant(512)),
            Level(children=20, tokens=constant(128)),
        ),
        description="the levels, the first one at the start of the prompt; by default tools, system prompts, users",
    )
    suffix_tokens: Tokens = Field(default=constant(128), description="length of a request's own text")
    output_tokens: Tokens = Field(default=constant(128), description="length of an answer")

    @model_validator(mode="after")
    def _not_too_wide(self) -> Self:
        leaves = 1
        for level in self.levels:
            leaves *= level.children
        if leaves > MAX_POOL:
            raise fault(f"the levels make {leaves:,} leaves; there may be at most {MAX_POOL:,}")
        return self


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    lengths: list[list[int]] = []
    branches = 1
    for depth, level in enumerate(params.levels):
        branches *= level.children
        lengths.append(random.pool(f"lengths of level {depth}", level.tokens, branches, 1))
    nodes = [Streams(random, f"level {depth}") for depth in range(len(params.levels))]
    ranks = [random.ranks(f"choice at level {d}", level.children, level.zipf) for d, level in enumerate(params.levels)]
    suffixes = random.draws("suffix lengths", params.suffix_tokens, 1)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    texts = Streams(random, "suffix")
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        prompt: list[Piece] = []
        node = 0
        for depth, level in enumerate(params.levels):
            # Nodes of a level are numbered from left to right.
            node = node * level.children + next(ranks[depth])
            prompt.append(Segment(nodes[depth][node], 0, lengths[depth][node]))
        prompt.append(Segment(texts[index], 0, next(suffixes)))
        yield request(prompt, next(outputs))
