"""What an experiment can say.  The descriptions here are the documentation: `docs/configuration.md` is made from them.

Engine keys are vLLM's flag names with vLLM's defaults.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from sim.config.sweep import SweepConfig
from sim.eviction.registry import POLICIES
from sim.timing.config import FixedTiming, TimingConfig
from sim.timing.memory import MemoryConfig
from workloads.load import WorkloadField, WorkloadItem

Count = Annotated[int, Field(ge=1, le=1 << 40)]
CountOrZero = Annotated[int, Field(ge=0, le=1 << 40)]
PositiveSeconds = Annotated[float, Field(gt=0.0, le=1e9)]


class Model(BaseModel):
    """Base of all sections: unknown keys, wrong types and infinite numbers are refused, nothing changes later."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class KVGroup(Model):
    """One group of layers with a block table of its own per request."""

    kind: Literal["full", "sliding_window"] = Field(default="full", description="attention of the group's layers")
    block_size: Count | None = Field(
        default=None, description="tokens per block of this group (default: `engine.block_size`)"
    )
    window: Count | None = Field(default=None, description="tokens that a sliding window covers, itself included")

    @model_validator(mode="after")
    def _window_belongs_to_sliding(self) -> KVGroup:
        if (self.kind == "sliding_window") != (self.window is not None):
            text = (
                "a sliding_window group needs window: TOKENS"
                if self.window is None
                else "window is only for kind: sliding_window"
            )
            raise PydanticCustomError("group_window", "{text}", {"text": text})
        return self


class EngineConfig(Model):
    """The engine: vLLM's flags under vLLM's names."""

    block_size: Annotated[int, Field(ge=1, le=65536)] = Field(default=16, description="tokens per KV block")
    max_num_seqs: Count = Field(default=256, description="requests that run at once, at most")
    max_num_batched_tokens: Count = Field(default=8192, description="tokens of one step, at most")
    max_model_len: Count | None = Field(
        default=None,
        description="tokens of one request, prompt and answer together (default: the model's own where `memory` "
        "names a model, else 131072)",
    )
    enable_prefix_caching: bool = Field(default=True, description="reuse the KV blocks of equal prefixes")
    prefix_caching_hash_algo: Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "builtin"] = Field(
        default="sha256",
        description="hash of a block's key. Real hashes are made only where they are written (KV events); "
        "elsewhere content fingerprints decide the same",
    )
    num_gpu_blocks_override: Annotated[int, Field(ge=2, le=1 << 32)] | None = Field(
        default=None, description="blocks of the pool, in place of what `memory` gives (the null block included)"
    )
    scheduling_policy: Literal["fcfs", "priority"] = Field(
        default="fcfs", description="order of waiting requests, and who is preempted"
    )
    enable_chunked_prefill: bool = Field(default=True, description="let a prompt be computed over several steps")
    long_prefill_token_threshold: CountOrZero = Field(
        default=0, description="tokens that one request computes per step at most when others are there; 0 = no limit"
    )
    watermark: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.0, description="share of all blocks kept free when a waiting request is admitted"
    )
    scheduler_reserve_full_isl: bool = Field(
        default=True, description="admit a request only when its whole sequence fits, not just its first chunk"
    )
    max_loras: Count | None = Field(default=None, description="distinct LoRA adapters that run at once, at most")
    disable_chunked_mm_input: bool = Field(default=False, description="never split a multimodal item over two steps")
    max_num_encoder_input_tokens: Count | None = Field(
        default=None, description="embeddings the encoder makes per step, at most (default: `max_num_batched_tokens`)"
    )
    encoder_cache_size: Count | None = Field(
        default=None, description="embeddings the encoder cache holds (default: `max_num_batched_tokens`)"
    )
    disable_hybrid_kv_cache_manager: bool = Field(
        default=False, description="plan sliding-window layers as full attention"
    )
    prefix_cache_retention_interval: CountOrZero | None = Field(
        default=0,
        description="which blocks of a sliding-window group are kept for reuse: nothing given (`null`) = all, "
        "0 = where a resend resumes, N = also every N tokens",
    )
    kv_cache_groups: list[KVGroup] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="groups of layers, when they are not planned from a model (default: one full-attention group)",
    )
    async_scheduling: Literal["auto"] | bool = Field(
        default="auto",
        description="schedule the next batch while the current one runs, as production engines do; "
        "`auto` = on, as in vLLM",
    )
    implementation: Literal["auto", "fast", "reference"] = Field(
        default="auto",
        description="code path that decides: `reference` is the readable one, `fast` takes equal decisions sooner, "
        "`auto` takes the fast one wherever it is exact",
    )


class EvictionConfig(Model):
    """Which free block is reused next; further keys are settings of the policy."""

    model_config = ConfigDict(extra="allow")

    policy: str = Field(
        default="lru",
        description="`lru` is the reference's own queue (least recently used, tails before heads); others: "
        + ", ".join(f"`{name}`" for name in POLICIES if name != "lru")
        + "; your own: `my_module:MyQueue`",
    )

    def params(self) -> dict[str, Any]:
        """The settings of the policy."""
        return dict(self.model_extra or {})


class RecordingConfig(Model):
    """Which tables a run writes."""

    requests: bool = Field(default=True, description="write `requests.parquet`, a row per request")
    steps: bool = Field(default=True, description="write `steps.parquet`, a row per engine step")
    evictions: bool = Field(default=True, description="write `evictions.parquet`, a row per evicted block")
    misses: bool = Field(
        default=False,
        description="write `misses.parquet`, why full blocks missed, and `eviction_costs.parquet`, what each eviction "
        "cost (see docs/misses.md)",
    )
    kv_events: Literal["none", "jsonl", "msgpack"] = Field(
        default="none", description="write KV events in vLLM's shape, as JSON lines or msgpack batches"
    )


class Warmup(Model):
    """What counts as warm-up; figures after it leave these requests out.  One of the three keys at most."""

    fraction: Annotated[float, Field(ge=0.0, lt=1.0)] | None = Field(
        default=None, description="first share of the requests, by arrival (default: 0.1)"
    )
    requests: CountOrZero | None = Field(default=None, description="first so many requests, by arrival")
    time_s: Annotated[float, Field(ge=0.0, le=1e9)] | None = Field(
        default=None, description="requests that arrive before this many seconds"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Warmup:
        given = [name for name in ("fraction", "requests", "time_s") if getattr(self, name) is not None]
        if len(given) > 1:
            raise PydanticCustomError(
                "warmup", "{names} contradict each other; give one", {"names": " and ".join(given)}
            )
        return self


class Slo(Model):
    """Service levels: a request is good when it meets all that are given (goodput counts these)."""

    ttft_s: PositiveSeconds | None = Field(default=None, description="seconds to the first token, at most")
    tpot_s: PositiveSeconds | None = Field(default=None, description="seconds per output token after it, at most")
    e2e_s: PositiveSeconds | None = Field(default=None, description="seconds from arrival to the end, at most")

    @model_validator(mode="after")
    def _something(self) -> Slo:
        if self.ttft_s is None and self.tpot_s is None and self.e2e_s is None:
            raise PydanticCustomError("slo", "give at least one of ttft_s, tpot_s, e2e_s")
        return self


class ExperimentConfig(Model):
    """One experiment."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] = Field(
        default="experiment",
        description="name of the experiment and of its results folder (default: the file's name)",
    )
    question: str | None = Field(default=None, description="the question it answers, shown in the report")
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        default=0, description="seed of all randomness; same config and seed, same bytes"
    )
    engine: EngineConfig = Field(default_factory=lambda: EngineConfig(), description="the engine's flags")
    memory: MemoryConfig = Field(description="how many KV blocks there are: a number, or bytes, or a model on a GPU")
    timing: TimingConfig = Field(default_factory=lambda: FixedTiming(step_s=0.04), description="how long a step takes")
    workload: WorkloadField | None = Field(
        default=None, description="the requests: a generator by `kind`, or `kind: trace` with a file"
    )
    workloads: Annotated[list[WorkloadField], Field(min_length=1)] | None = Field(
        default=None, description="several workloads at once, each with a `category`"
    )
    eviction: EvictionConfig = Field(default_factory=lambda: EvictionConfig(), description="the eviction policy")
    recording: RecordingConfig = Field(default_factory=lambda: RecordingConfig(), description="tables to write")
    warmup: Warmup = Field(
        default_factory=lambda: Warmup(), description="requests that figures after warm-up leave out"
    )
    slo: Slo | None = Field(default=None, description="service levels, for goodput")
    serve: str | None = Field(
        default=None, description="a `vllm serve …` command line whose flags set the engine and memory"
    )
    sweep: SweepConfig | None = Field(default=None, description="points of a sweep; `kvsim sweep` runs them")

    @model_validator(mode="after")
    def _one_source(self) -> ExperimentConfig:
        if (self.workload is None) == (self.workloads is None):
            text = (
                "give workload: (one) or workloads: (a list); one of them must be there"
                if self.workload is None
                else "workload and workloads contradict each other; give one"
            )
            raise PydanticCustomError("workload", "{text}", {"text": text})
        return self

    def workload_items(self) -> list[WorkloadItem]:
        """All workloads, one or several."""
        return [self.workload] if self.workload is not None else list(self.workloads or [])
