"""vLLM's multi-turn benchmark: conversations generated with a common prefix and a prefix of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from workloads.arrivals import Arrivals, ClosedLoop
from workloads.distributions import (
    MAX_TOKENS,
    Count,
    Distribution,
    LogNormal,
    Seconds,
    Tokens,
    TokensOrNone,
    Uniform,
    constant,
)
from workloads.generators.common import Randomness, SessionParams, Streams, Total
from workloads.generators.prompt import Session
from workloads.log import ReadLog
from workloads.spec import RequestSpec, Segment

NAME = "vllm_multi_turn"
SUMMARY = "vLLM multi-turn benchmark: conversations with a common and an own prefix, a few clients in closed loop"


class Params(SessionParams):
    """Settings of `vllm_multi_turn`, under the names of the benchmark's own file; sessions are conversations."""

    sessions: Total = Field(default=24, description="number of conversations")
    arrivals: Arrivals = Field(
        default=Arrivals(closed_loop=ClosedLoop(clients=2)),
        description="when conversations begin; in the benchmark, each client has one at a time",
    )
    num_turns: Count = Field(
        default=Distribution(uniform=Uniform(min=12, max=18)),
        description="messages of a conversation, of both sides: half as many requests; an odd number is rounded up",
    )
    common_prefix_num_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = Field(
        default=500, description="length of the prefix that all conversations share"
    )
    prefix_num_tokens: TokensOrNone = Field(
        default=Distribution(lognormal=LogNormal(mean=1000, sigma=1.0, max=5000)),
        description="length of the prefix that a conversation has for itself",
    )
    num_tokens: Tokens = Field(
        default=Distribution(uniform=Uniform(min=120, max=160)), description="length of what a user says"
    )
    output_num_tokens: Tokens = Field(
        default=Distribution(uniform=Uniform(min=80, max=120)), description="length of an answer"
    )
    think_s: Seconds = Field(default=constant(0), description="seconds from the end of an answer to the next turn")


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, conversation by conversation."""
    random = Randomness(rng, NAME)
    common = Segment(random.stream("common prefix"), 0, params.common_prefix_num_tokens)
    messages = random.draws("turns", params.num_turns, 1)
    own = random.draws("prefix lengths", params.prefix_num_tokens)
    users = random.draws("user lengths", params.num_tokens, 1)
    outputs = random.draws("answer lengths", params.output_num_tokens, 1)
    pauses = random.seconds("think times", params.think_s)
    texts, answers = Streams(random, "text"), Streams(random, "answer")
    for number, release, source in random.releases(params.arrivals, params.sessions, log):
        session = Session(f"{prefix}{number}", number, release, answers)
        session.add(common)
        said = 0
        for turn in range((next(messages) + 1) // 2):
            says = next(users) + (0 if turn else next(own))
            session.add(Segment(texts[number], said, says))
            said += says
            output = next(outputs)
            yield session.request(output, next(pauses))
            session.add(session.last_answer(output))
        source.ended(session.last_id)
