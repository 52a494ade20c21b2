"""A request of the workload as the scheduler knows it."""

from __future__ import annotations

from collections.abc import Callable

from sim.core.admission import Admission
from sim.core.request import Request
from sim.core.scheduler_config import SchedulerConfig
from workloads.spec import RequestSpec


def max_tokens_of(spec: RequestSpec) -> int:
    """The client's cap on the answer, the only length that a scheduler may see."""
    return spec.output_tokens if spec.max_tokens is None else spec.max_tokens


def core_request(spec: RequestSpec, index: int, arrival_s: float) -> Request:
    """The scheduler's request, without block hashes."""
    return Request(
        spec.request_id,
        spec.prompt_tokens,
        max_tokens_of(spec),
        arrival_s,
        priority=spec.priority,
        lora_request=spec.lora,
        cache_salt=spec.cache_salt,
        mm_hashes=[item.identifier for item in spec.mm_items],
        mm_positions=spec.mm_items,
        index=index,
    )


def door(config: SchedulerConfig) -> Callable[[RequestSpec], str | None]:
    """What tells of an arriving request why it can never be served (None: it can)."""
    admission = Admission(config)

    def why_never(spec: RequestSpec) -> str | None:
        if spec.output_tokens <= 0:
            return f"no output tokens are to be answered (output_tokens {spec.output_tokens})"
        return admission.why_never(core_request(spec, -1, 0.0))

    return why_never
