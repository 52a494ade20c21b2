"""Tenants with a LoRA adapter each: the same tokens under two adapters share no block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from workloads.distributions import Tokens, TokensOrNone, constant
from workloads.generators.common import PoolSize, Randomness, RequestParams, Share, Streams, ZipfExponent
from workloads.generators.prompt import single_requests
from workloads.log import ReadLog
from workloads.spec import LoRA, RequestSpec, Segment, stream_id

NAME = "lora_tenants"
SUMMARY = "tenants with a LoRA adapter each, over one system prompt or their own"


class Params(RequestParams):
    """Settings of `lora_tenants`."""

    adapters: PoolSize = Field(default=8, description="number of adapters")
    adapter_zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of their popularity; 0 = all alike")
    base_share: Share = Field(default=0.0, description="share of requests to the base model, without an adapter")
    shared_system: bool = Field(
        default=True,
        description="whether all tenants have the same system prompt (cached once for each adapter) or their own",
    )
    system_tokens: TokensOrNone = Field(
        default=constant(1024), description="length of a system prompt, drawn once for each"
    )
    suffix_tokens: Tokens = Field(default=constant(256), description="length of a request's own text")
    output_tokens: Tokens = Field(default=constant(128), description="length of an answer")


def adapter(prefix: str, rank: int) -> LoRA:
    """The adapter of a tenant; its number is derived from its name, so that two workloads don't collide."""
    name = f"{prefix}lora{rank}"
    return LoRA(name, stream_id("lora", name) % (2**31 - 1) + 1)


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    # Tenant `adapters` is the base model.
    own = [0] * (params.adapters + 1) if params.shared_system else list(range(params.adapters + 1))
    lengths = random.pool("system lengths", params.system_tokens, max(own) + 1)
    ranks = random.ranks("adapter popularity", params.adapters, params.adapter_zipf)
    base = random.rng("base model")
    adapters = [adapter(prefix, rank) for rank in range(params.adapters)]
    suffixes = random.draws("suffix lengths", params.suffix_tokens, 1)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    systems, texts = Streams(random, "system"), Streams(random, "suffix")
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        rank = next(ranks)
        if base.random() < params.base_share:
            rank = params.adapters
        system = own[rank]
        yield request(
            [Segment(systems[system], 0, lengths[system]), Segment(texts[index], 0, next(suffixes))],
            next(outputs),
            lora=adapters[rank] if rank < params.adapters else None,
        )
