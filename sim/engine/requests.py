"""What the engine does with a request of the workload before it lets it in."""

from __future__ import annotations

from collections.abc import Callable

from sim.core.admission import Admission
from sim.core.scheduler_config import SchedulerConfig
from sim.core.spec_request import request_from_spec
from workloads.spec import RequestSpec


def max_tokens_of(spec: RequestSpec) -> int:
    """The client's cap on the answer, the only length that a scheduler may see."""
    return spec.output_tokens if spec.max_tokens is None else spec.max_tokens


def door(config: SchedulerConfig) -> Callable[[RequestSpec], str | None]:
    """What tells of an arriving request why it can never be served (None: it can)."""
    admission = Admission(config)

    def why_never(spec: RequestSpec) -> str | None:
        if spec.output_tokens <= 0:
            return f"no output tokens are to be answered (output_tokens {spec.output_tokens})"
        return admission.why_never(request_from_spec(spec, None, index=-1, arrival_time=0.0))

    return why_never
