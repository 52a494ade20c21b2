"""What the engine does with a request of the workload before it lets it in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sim.core.admission import Admission
from sim.core.scheduler_config import SchedulerConfig
from workloads.spec import MultiModalItem, RequestSpec


class _Asked(NamedTuple):
    num_prompt_tokens: int
    max_tokens: int
    mm_hashes: Sequence[str]
    mm_positions: tuple[MultiModalItem, ...]


def max_tokens_of(spec: RequestSpec) -> int:
    """The client's cap on the answer, the only length that a scheduler may see."""
    return spec.output_tokens if spec.max_tokens is None else spec.max_tokens


def door(config: SchedulerConfig) -> Callable[[RequestSpec], str | None]:
    """What tells of an arriving request why it can never be served (None: it can)."""
    admission = Admission(config)

    def why_never(spec: RequestSpec) -> str | None:
        if spec.output_tokens <= 0:
            return f"no output tokens are to be answered (output_tokens {spec.output_tokens})"
        identifiers = [item.identifier for item in spec.mm_items]
        return admission.why_never(_Asked(spec.prompt_tokens, max_tokens_of(spec), identifiers, spec.mm_items))

    return why_never
