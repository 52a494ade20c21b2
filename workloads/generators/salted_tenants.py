"""Tenants whose caches are kept apart by a salt: equal prompts of two tenants share no block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from workloads.distributions import Tokens, TokensOrNone, constant
from workloads.generators.common import PoolSize, Randomness, RequestParams, Streams, ZipfExponent
from workloads.generators.prompt import single_requests
from workloads.log import ReadLog
from workloads.spec import RequestSpec, Segment

NAME = "salted_tenants"
SUMMARY = "tenants kept apart by a cache salt, over one system prompt"


class Params(RequestParams):
    """Settings of `salted_tenants`: system prompt of all, the tenant's own prompt, the request's text."""

    tenants: PoolSize = Field(default=8, description="number of tenants")
    tenant_zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of their popularity; 0 = all alike")
    salted: bool = Field(
        default=True, description="whether each tenant has a salt; false shows what sharing would bring"
    )
    system_tokens: TokensOrNone = Field(
        default=constant(1024), description="length of the system prompt of all tenants"
    )
    tenant_tokens: TokensOrNone = Field(
        default=constant(256), description="length of a tenant's prompt, drawn once for each"
    )
    suffix_tokens: Tokens = Field(default=constant(256), description="length of a request's own text")
    output_tokens: Tokens = Field(default=constant(128), description="length of an answer")


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    system = Segment(random.stream("system"), 0, random.pool("system length", params.system_tokens, 1)[0])
    lengths = random.pool("tenant prompt lengths", params.tenant_tokens, params.tenants)
    ranks = random.ranks("tenant popularity", params.tenants, params.tenant_zipf)
    suffixes = random.draws("suffix lengths", params.suffix_tokens, 1)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    tenants, texts = Streams(random, "tenant"), Streams(random, "suffix")
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        rank = next(ranks)
        yield request(
            [system, Segment(tenants[rank], 0, lengths[rank]), Segment(texts[index], 0, next(suffixes))],
            next(outputs),
            cache_salt=f"{prefix}tenant{rank}" if params.salted else None,
        )
