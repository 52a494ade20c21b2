"""What ``sweep:`` in a configuration can say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Values = Annotated[list[Any], Field(min_length=1)]


class Variant(BaseModel):
    """A named set of changes."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    name: Annotated[str, Field(min_length=1)] = Field(description="its name in tables and figures")
    set: dict[str, Any] = Field(default={}, description="configuration path → value")


class SweepConfig(BaseModel):
    """The points of a sweep: every combination of grid, zip, variants and seeds that no condition leaves out."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    grid: dict[str, Values] = Field(default={}, description="configuration path → values; all combinations are run")
    zip: dict[str, Values] = Field(
        default={}, description="configuration path → values; the first of each together, then the second, …"
    )
    variants: Annotated[list[Variant], Field(min_length=1)] | None = Field(
        default=None, description="named sets of changes, run one by one with every other combination"
    )
    seeds: Annotated[int, Field(ge=1, le=10_000)] | Annotated[list[int], Field(min_length=1)] | None = Field(
        default=None, description="a number of seeds (counted from the config's), or a list of them"
    )
    where: list[str] = Field(
        default=[],
        description="conditions that every point must meet, such as "
        "`engine.block_size * memory.num_gpu_blocks <= 1000000`",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> SweepConfig:
        lengths = {path: len(values) for path, values in self.zip.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{path} has {count}" for path, count in lengths.items())
            raise PydanticCustomError("zip", "zip needs lists of one length: {shown}", {"shown": shown})
        if both := sorted(set(self.grid) & set(self.zip)):
            raise PydanticCustomError("zip", "{paths} stands in grid and in zip; once", {"paths": ", ".join(both)})
        names = [variant.name for variant in self.variants or []]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PydanticCustomError("variants", "two variants are named {names}", {"names": ", ".join(twice)})
        return self
