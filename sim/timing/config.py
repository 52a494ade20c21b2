"""The `timing:` block of a configuration: one model per kind, told apart by `kind`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(ge=0.0, lt=3600.0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


class FixedTiming(_Strict):
    """Every step takes the same time."""

    kind: Literal["fixed"] = "fixed"
    step_s: Annotated[float, Field(gt=0.0, lt=3600.0, allow_inf_nan=False)] = Field(
        description="seconds that every step takes"
    )


class LinearTiming(_Strict):
    """A sum of products whose coefficients were measured (`kvsim fit` finds them)."""

    kind: Literal["linear"] = "linear"
    step_s: Annotated[float, Field(gt=0.0, lt=3600.0, allow_inf_nan=False)] = Field(
        description="seconds that an empty step would take"
    )
    prefill_token_s: Seconds = Field(default=0.0, description="seconds per prefill token of the step")
    decode_request_s: Seconds = Field(default=0.0, description="seconds per request that decodes in the step")
    context_kilotoken_s: Seconds = Field(
        default=0.0, description="seconds per thousand cached tokens that the step's requests read"
    )
    encoder_token_s: Seconds = Field(default=0.0, description="seconds per embedding that the multimodal encoder makes")


class Efficiencies(_Strict):
    """How much of a GPU's figures a real engine reaches, and its fixed costs; one set of defaults for all."""

    weight_bandwidth: Share = Field(default=0.80, description="share of memory bandwidth reached when reading weights")
    kv_bandwidth: Share = Field(default=0.80, description="share of memory bandwidth reached when reading the KV cache")
    compute: Share = Field(default=0.68, description="share of peak matrix throughput reached by linear layers")
    attention: Share = Field(default=0.60, description="share of peak matrix throughput reached by attention")
    dequantize: Share = Field(
        default=0.20, description="of that, the share left for 4-bit weights on a GPU that must convert them first"
    )
    encoder: Share = Field(default=0.40, description="share of peak matrix throughput reached by the image encoder")
    layer_s: Seconds = Field(default=40e-6, description="fixed seconds per layer and step (kernels start and drain)")
    moe_layer_s: Seconds = Field(default=15e-6, description="more of them per layer with experts (routing, sorting)")
    expert_tile_tokens: Annotated[float, Field(ge=0.0, le=1024.0)] = Field(
        default=8.0, description="rows that every touched expert computes in vain, half of a matrix tile"
    )
    step_s: Seconds = Field(default=0.4e-3, description="fixed seconds per step (scheduling, launch)")
    request_s: Seconds = Field(default=20e-6, description="seconds per request in the step (sampling, bookkeeping)")
    allreduce_s: Seconds = Field(default=6e-6, description="seconds before an all-reduce moves its first byte")
    link: Share = Field(default=0.67, description="share of the GPU interconnect's bandwidth that all-reduces reach")
    pcie: Share = Field(default=0.16, description="the same over PCIe, where data passes through the host")


class RooflineTiming(_Strict):
    """Time from the figures of a model and a GPU; what is left out here is taken from `memory:`."""

    kind: Literal["roofline"] = "roofline"
    model: str | None = Field(default=None, description="catalog name or path of a config.json (default: memory.model)")
    gpu: str | None = Field(default=None, description="catalog name of the GPU (default: memory.gpu)")
    tensor_parallel_size: int | None = Field(
        default=None, ge=1, le=1024, description="GPUs that share the model (default: memory.tensor_parallel_size)"
    )
    data_parallel_size: int = Field(
        default=1, ge=1, le=1024, description="engines with like batches that share the experts of a mixture"
    )
    dtype: str | None = Field(default=None, description="weights as bf16, fp8, int4, mxfp4 (default: memory.dtype)")
    kv_cache_dtype: str | None = Field(default=None, description="auto, bfloat16, fp8 (default: memory.kv_cache_dtype)")
    efficiencies: Efficiencies = Field(
        default_factory=lambda: Efficiencies(), description="shares reached and fixed costs"
    )


class TableTiming(_Strict):
    """Measured points, interpolated."""

    kind: Literal["table"] = "table"
    path: str = Field(description="CSV with prefill_tokens, decode_requests, context_tokens, seconds")
    extrapolate: Literal["refuse", "clamp"] = Field(
        default="refuse",
        description="outside the measured points: stop with an error, or use the nearest point",
    )


TimingConfig = Annotated[FixedTiming | LinearTiming | RooflineTiming | TableTiming, Field(discriminator="kind")]
