"""Chats: each turn contains the whole conversation so far and arrives after the answer and a think time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from workloads.distributions import Count, Distribution, LogNormal, Seconds, Tokens, TokensOrNone, Uniform, constant
from workloads.generators.common import PoolSize, Randomness, SessionParams, Streams, ZipfExponent
from workloads.generators.prompt import Session
from workloads.log import ReadLog
from workloads.spec import RequestSpec, Segment

NAME = "multi_turn"
SUMMARY = "chats in which the next turn contains the answer and comes after it and a think time"


class Params(SessionParams):
    """Settings of `multi_turn`."""

    turns: Count = Field(
        default=Distribution(uniform=Uniform(min=2, max=10)), description="number of requests of a session"
    )
    system_prompts: PoolSize = Field(default=1, description="number of different system prompts")
    system_zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of their popularity; 0 = all alike")
    system_tokens: TokensOrNone = Field(
        default=constant(512), description="length of a system prompt, drawn once for each"
    )
    user_tokens: Tokens = Field(
        default=Distribution(lognormal=LogNormal(mean=100, sigma=1.0)), description="length of what a user says"
    )
    thinking_tokens: TokensOrNone = Field(
        default=constant(0), description="tokens at the start of an answer that later turns leave out, as reasoning is"
    )
    output_tokens: Tokens = Field(
        default=Distribution(lognormal=LogNormal(mean=250, sigma=0.8)),
        description="length of the rest of the answer, which later turns contain",
    )
    think_s: Seconds = Field(default=constant(10), description="seconds from the end of an answer to the next turn")
    max_context_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="a session ends before prompt and answer together exceed this; null = never"
    )


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, session by session."""
    random = Randomness(rng, NAME)
    lengths = random.pool("system lengths", params.system_tokens, params.system_prompts)
    ranks = random.ranks("system popularity", params.system_prompts, params.system_zipf)
    turns = random.draws("turns", params.turns, 1)
    users = random.draws("user lengths", params.user_tokens, 1)
    thoughts = random.draws("thinking lengths", params.thinking_tokens)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    pauses = random.seconds("think times", params.think_s)
    systems, texts, answers = Streams(random, "system"), Streams(random, "user"), Streams(random, "answer")
    for number, release, source in random.releases(params.arrivals, params.sessions, log):
        session = Session(f"{prefix}{number}", number, release, answers)
        rank = next(ranks)
        session.add(Segment(systems[rank], 0, lengths[rank]))
        said = 0
        for left in range(next(turns), 0, -1):
            user, thought, pause = next(users), next(thoughts), next(pauses)
            output = thought + next(outputs)
            if params.max_context_tokens is not None and session.tokens + user + output > params.max_context_tokens:
                if session.turn:
                    log.count("turns not made: the context was full", left)
                    break
                log.count("sessions whose first turn alone exceeds max_context_tokens")
            session.add(Segment(texts[number], said, user))
            said += user
            yield session.request(output, pause)
            session.add(session.last_answer(output, thought))
        source.ended(session.last_id)
