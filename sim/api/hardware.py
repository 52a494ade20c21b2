"""Memory, models, GPUs, and step times fitted to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from sim.timing.account import Account
    from sim.timing.fitting import Fit


class Plan:
    """How many blocks there are and the account that leads there: `num_blocks`, `account`, readable when shown."""

    def __init__(self, account: Account) -> None:
        self.account = account

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool, the null block included."""
        return self.account.num_blocks

    def __repr__(self) -> str:
        return "\n".join(self.account.lines())


def plan(*, serve: str | None = None, **settings: Any) -> Plan:
    """How many KV blocks a model, a GPU and vLLM's flags give.

    Args:
        serve: a ``vllm serve …`` command line.
        settings: keys of `memory:` (`model`, `gpu`, `kv_cache_memory`, …) and of `engine:` that planning
            needs (`block_size`, `max_model_len`, `max_num_batched_tokens`, `max_num_seqs`,
            `num_gpu_blocks_override`, `disable_hybrid_kv_cache_manager`); they win over the line.

    Raises:
        ConfigError: an unknown key or value; a model that does not fit.

    >>> import sim
    >>> sim.plan(model="llama-3.1-8b", kv_cache_memory="20GiB").num_blocks
    10240
    """
    from pydantic import ValidationError

    from sim.config.errors import ConfigFaults, Places, fault_lines, suggestion
    from sim.timing.memory import MemoryConfig, plan_memory
    from sim.timing.serve_line import parse_serve_line

    memory: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    if serve is not None:
        found = parse_serve_line(serve)
        memory = {"model": found.model} | found.memory
        engine = {key: value for key, value in found.engine.items() if key in _PLANNED}
    for key, value in settings.items():
        if key not in (*MemoryConfig.model_fields, *_PLANNED):
            raise ConfigFaults([f"{key}: unknown key; {suggestion(key, [*MemoryConfig.model_fields, *_PLANNED])}"])
        (engine if key in _PLANNED else memory)[key] = value
    try:
        config = MemoryConfig.model_validate(memory)
    except ValidationError as error:
        raise ConfigFaults(fault_lines(error, MemoryConfig, memory, Places(), ("memory",))) from None
    return Plan(plan_memory(config, **engine).account)


_PLANNED = ("block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks_override",
            "disable_hybrid_kv_cache_manager")  # fmt: skip


def fit(
    measurements: str | Path,
    kind: str = "linear",
    *,
    model: str | None = None,
    gpu: str | None = None,
    tensor_parallel_size: int = 1,
    dtype: str | None = None,
) -> Fit:
    """Coefficients of a step-time model from a CSV file of measured steps, with the errors that they leave.

    Args:
        measurements: columns prefill_tokens, decode_requests, context_tokens (or cached_tokens), seconds.
        kind: ``linear`` or ``roofline``; a roofline needs `model` and `gpu`.

    Raises:
        KvsimError: the file, a name or the data cannot be used.
        ValueError: an unknown kind, or a roofline without model and GPU.
    """
    from sim.timing.catalog import find_gpu, find_model
    from sim.timing.fitting import fit_linear, fit_roofline
    from sim.timing.points import read_points

    if kind not in ("linear", "roofline"):
        raise ValueError(f"kind must be linear or roofline, not {kind!r}")
    points = read_points(Path(measurements))
    if kind == "linear":
        return fit_linear(points)
    if model is None or gpu is None:
        raise ValueError("a roofline needs model and gpu")
    return fit_roofline(
        points, find_model(model), find_gpu(gpu), tensor_parallel_size=tensor_parallel_size, dtype=dtype
    )


def models() -> pd.DataFrame:
    """The models of the catalog."""
    import pandas as pd

    from sim.timing.catalog import all_models

    rows = [
        {
            "model": model.name,
            "params": model.total_params,
            "layers": len(kinds := model.layer_kinds()),
            "kv_bytes_per_token": model.kv_bytes_per_token_and_layer() * len(kinds),
            "weights": model.weights,
            "weight_bytes": model.weight_bytes(),
        }
        for model in all_models()
    ]
    return pd.DataFrame(rows)


def gpus() -> pd.DataFrame:
    """The GPUs of the catalog, with every figure that is known."""
    import pandas as pd

    from sim.timing.catalog import all_gpus

    return pd.DataFrame([gpu.model_dump(exclude_none=True) for gpu in all_gpus()])
