"""Agents: loops of model and tool whose context grows, with sub-agents that work on parts of the task."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from workloads.arrivals import Release
from workloads.distributions import (
    Count,
    Distribution,
    Exponential,
    LogNormal,
    Seconds,
    Tokens,
    TokensOrNone,
    Uniform,
    constant,
)
from workloads.generators.common import PoolSize, Randomness, SessionParams, Share, Streams, ZipfExponent
from workloads.generators.prompt import Session
from workloads.log import ReadLog
from workloads.spec import Piece, RequestSpec, Segment

NAME = "agents"
SUMMARY = "agents: tool loops with growing context, sub-agents that share a prefix"


class Params(SessionParams):
    """Settings of `agents`; a session is one task."""

    agents: PoolSize = Field(default=3, description="number of different agents, each with tools and instructions")
    agent_zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of their popularity; 0 = all alike")
    system_tokens: Tokens = Field(
        default=constant(6000), description="length of an agent's tools and instructions, drawn once for each"
    )
    task_tokens: Tokens = Field(
        default=Distribution(lognormal=LogNormal(mean=400, sigma=1.0)), description="length of a task"
    )
    steps: Count = Field(
        default=Distribution(uniform=Uniform(min=3, max=20)), description="number of requests of an agent for a task"
    )
    output_tokens: Tokens = Field(
        default=Distribution(lognormal=LogNormal(mean=200, sigma=0.8)), description="length of an answer (a tool call)"
    )
    tool_result_tokens: TokensOrNone = Field(
        default=Distribution(lognormal=LogNormal(mean=800, sigma=1.2, max=20_000)),
        description="length of a tool's result",
    )
    tool_s: Seconds = Field(
        default=Distribution(exponential=Exponential(mean=2)), description="seconds that a tool takes"
    )
    subagent_share: Share = Field(default=0.1, description="share of steps that start sub-agents instead of a tool")
    subagents: Count = Field(default=constant(1), description="number of sub-agents that such a step starts together")
    subagent_context: Literal["own", "inherited"] = Field(
        default="own",
        description="a sub-agent's prompt begins with a system prompt that all sub-agents share (own), "
        "or with all that its parent has seen (inherited)",
    )
    subagent_system_tokens: Tokens = Field(default=constant(3000), description="length of that system prompt")
    subagent_task_tokens: Tokens = Field(default=constant(200), description="length of a sub-agent's task")
    subagent_steps: Count = Field(
        default=Distribution(uniform=Uniform(min=1, max=6)), description="number of requests of a sub-agent"
    )
    max_context_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="an agent stops before prompt and answer together exceed this; null = never"
    )


class _Outcome(NamedTuple):
    """What an agent that has finished leaves behind."""

    last_id: str
    answer: Segment
    total_output_tokens: int


class _Agents:
    """Draws and streams of one workload of agents."""

    def __init__(self, params: Params, random: Randomness, log: ReadLog) -> None:
        self.params = params
        self.log = log
        self.outputs = random.draws("answer lengths", params.output_tokens, 1)
        self.results = random.draws("tool result lengths", params.tool_result_tokens)
        self.waits = random.seconds("tool times", params.tool_s)
        self.delegates = random.rng("sub-agent starts")
        self.sub_counts = random.draws("sub-agents", params.subagents, 1)
        self.sub_steps = random.draws("sub-agent steps", params.subagent_steps, 1)
        self.sub_tasks = random.draws("sub-agent task lengths", params.subagent_task_tokens, 1)
        sub_length = random.pool("sub-agent system length", params.subagent_system_tokens, 1, 1)[0]
        self.sub_system = Segment(random.stream("sub-agent system"), 0, sub_length)
        self.answers = Streams(random, "answer")
        self.texts = Streams(random, "text")
        self.made = 0

    def start(self, name: str, release: Release, context: Iterable[Piece], task_tokens: int) -> Session:
        """An agent or sub-agent that is about to make its first request."""
        session = Session(name, self.made, release, self.answers)
        self.made += 1
        for piece in context:
            session.add(piece)
        session.add(Segment(self.texts[session.number], 0, task_tokens))
        return session

    def work(
        self, session: Session, task_tokens: int, steps: int, may_delegate: bool
    ) -> Generator[RequestSpec, None, _Outcome]:
        """The requests of an agent and of the sub-agents it starts."""
        text, said = self.texts[session.number], task_tokens
        total, answered, wait_s = 0, 0, 0.0
        after = None
        for step in range(steps):
            output = next(self.outputs)
            if self._is_full(session, output):
                break
            yield session.request(output, wait_s, after=after)
            answered = output
            total += output
            if step + 1 == steps:
                break
            session.add(session.last_answer(output))
            if may_delegate and self.delegates.random() < self.params.subagent_share:
                outcomes = []
                for _ in range(next(self.sub_counts)):
                    outcomes.append((yield from self._delegate(session)))
                for outcome in outcomes:
                    session.add(outcome.answer)
                after, wait_s = max(outcomes, key=lambda outcome: outcome.total_output_tokens).last_id, 0.0
            else:
                result = next(self.results)
                session.add(Segment(text, said, result))
                said += result
                after, wait_s = None, next(self.waits)
        return _Outcome(session.last_id, session.last_answer(answered), total)

    def _delegate(self, parent: Session) -> Generator[RequestSpec, None, _Outcome]:
        inherited = self.params.subagent_context == "inherited"
        context = parent.pieces if inherited else [self.sub_system]
        name = f"{parent.name}/sub{self.made - parent.number}"
        task_tokens = next(self.sub_tasks)
        session = self.start(name, Release(parent.arrival_s, parent.last_id), context, task_tokens)
        return (yield from self.work(session, task_tokens, next(self.sub_steps), may_delegate=False))

    def _is_full(self, session: Session, output_tokens: int) -> bool:
        """Whether the next request would exceed the context; the first one is made in any case."""
        most = self.params.max_context_tokens
        if most is None or session.tokens + output_tokens <= most:
            return False
        if not session.turn:
            self.log.count("agents and sub-agents whose first request alone exceeds max_context_tokens")
            return False
        self.log.count("agents and sub-agents stopped because the context was full")
        return True


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, task by task.

    A step that started several sub-agents follows the one with the most output tokens, for a request can
    follow only one other.
    """
    random = Randomness(rng, NAME)
    lengths = random.pool("system lengths", params.system_tokens, params.agents, 1)
    systems = Streams(random, "system")
    ranks = random.ranks("agent popularity", params.agents, params.agent_zipf)
    tasks = random.draws("task lengths", params.task_tokens, 1)
    steps = random.draws("steps", params.steps, 1)
    agents = _Agents(params, random, log)
    for number, release, source in random.releases(params.arrivals, params.sessions, log):
        rank, task_tokens = next(ranks), next(tasks)
        system = Segment(systems[rank], 0, lengths[rank])
        session = agents.start(f"{prefix}{number}", release, [system], task_tokens)
        yield from agents.work(session, task_tokens, next(steps), may_delegate=True)
        source.ended(session.last_id)
