"""Chats about images: an image stays in the conversation, so it returns with every later turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from workloads.distributions import Count, Distribution, LogNormal, Seconds, Tokens, TokensOrNone, Uniform, constant
from workloads.generators.common import Randomness, SessionParams, Share, Streams
from workloads.generators.images import ImageParams, ImagePool
from workloads.generators.prompt import Session
from workloads.log import ReadLog
from workloads.spec import RequestSpec, Segment

NAME = "multimodal_chat"
SUMMARY = "chats in which images return with every later turn"


class Params(ImageParams, SessionParams):
    """Settings of `multimodal_chat`."""

    turns: Count = Field(
        default=Distribution(uniform=Uniform(min=2, max=6)), description="number of requests of a session"
    )
    first_turn_images: bool = Field(default=True, description="whether the first turn always has images")
    image_share: Share = Field(default=0.3, description="share of the other turns that bring images")
    images_per_turn: Count = Field(default=constant(1), description="number of images of a turn that brings some")
    system_tokens: TokensOrNone = Field(default=constant(64), description="length of the system prompt of all sessions")
    user_tokens: Tokens = Field(
        default=Distribution(lognormal=LogNormal(mean=60, sigma=0.8)), description="length of what a user says"
    )
    output_tokens: Tokens = Field(
        default=Distribution(lognormal=LogNormal(mean=200, sigma=0.8)), description="length of an answer"
    )
    think_s: Seconds = Field(default=constant(10), description="seconds from the end of an answer to the next turn")
    max_context_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="a session ends before prompt and answer together exceed this; null = never"
    )


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, session by session."""
    random = Randomness(rng, NAME)
    pool = ImagePool(params, random, prefix, log)
    system = Segment(random.stream("system"), 0, random.pool("system length", params.system_tokens, 1)[0])
    turns = random.draws("turns", params.turns, 1)
    counts = random.draws("images of a turn", params.images_per_turn, 1)
    brings = random.rng("turns with images")
    users = random.draws("user lengths", params.user_tokens, 1)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    pauses = random.seconds("think times", params.think_s)
    texts, answers = Streams(random, "user"), Streams(random, "answer")
    for number, release, source in random.releases(params.arrivals, params.sessions, log):
        session = Session(f"{prefix}{number}", number, release, answers)
        session.add(system)
        said = 0
        for left in range(next(turns), 0, -1):
            shown = (not session.turn and params.first_turn_images) or brings.random() < params.image_share
            images = pool.draw(next(counts)) if shown else []
            user, output, pause = next(users), next(outputs), next(pauses)
            coming = sum(image.tokens for image in images) + user + output
            if params.max_context_tokens is not None and session.tokens + coming > params.max_context_tokens:
                if session.turn:
                    log.count("turns not made: the context was full", left)
                    break
                log.count("sessions whose first turn alone exceeds max_context_tokens")
            for image in images:
                session.add_image(image)
            session.add(Segment(texts[number], said, user))
            said += user
            yield session.request(output, pause)
            session.add(session.last_answer(output))
        source.ended(session.last_id)
