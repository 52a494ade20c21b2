"""What is known of a GPU: memory, bandwidth, peak throughput and interconnect."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim.core.kv_cache_spec import GIB


class GpuSpec(BaseModel):
    """One GPU.  Figures are the vendor's (dense, no sparsity), one direction for links; unknown is None."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    name: str
    source: str
    aliases: tuple[str, ...] = ()
    confidence: str
    memory_gib: float = Field(gt=0, description="memory that the driver reports, GiB")
    bandwidth_gbps: float = Field(gt=0, description="memory bandwidth, 10⁹ bytes per second")
    dense_tflops: dict[str, float | None] = Field(description="peak by dtype (bf16, fp8, fp4), 10¹² per second")
    interconnect: str
    interconnect_gbps: float = Field(ge=0, description="GPU to GPU, 10⁹ bytes per second each way; 0: none but PCIe")
    pcie_gbps: float = Field(gt=0, description="PCIe, 10⁹ bytes per second each way")
    note: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return data

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return int(self.memory_gib * GIB)

    def peak_flops(self, arithmetic: str) -> float:
        """FLOP/s of matrix products; a dtype that the GPU lacks computes at the next wider one's rate."""
        order = ("fp4", "fp8", "bf16")
        for name in order[order.index(arithmetic) :]:
            rate = self.dense_tflops.get(name)
            if rate is not None:
                return rate * 1e12
        raise ValueError(f"{self.name} has no dense bf16 rate")
