"""`kvsim plan`: how many blocks a model, a GPU and vLLM's flags give, with the account that leads there."""

from __future__ import annotations

import json
from typing import Any

import click

from sim.errors import ConfigError


@click.command()
@click.option("--model", help="Catalog name (kvsim models) or path of a config.json.")
@click.option("--gpu", help="Catalog name (kvsim gpus).")
@click.option("--serve", help='Settings from a line such as "vllm serve MODEL --block-size 32 …".')
@click.option("-tp", "--tensor-parallel-size", type=int, help="GPUs that share every layer.  [default: 1]")
@click.option("--gpu-memory-utilization", type=float, help="Share of the GPU's memory.  [default: 0.9]")
@click.option("--kv-cache-memory", multiple=True, metavar="SIZE", help="10.5GiB, 40GB; again for every worker.")
@click.option("--kv-cache-dtype", help="auto, bfloat16, fp8 …  [default: auto]")
@click.option("--dtype", help="Weights as bf16, fp8, int8, int4, fp4, mxfp4.  [default: as published]")
@click.option("--weights-memory", metavar="SIZE", help="Weights per GPU, where you know better.")
@click.option("--reserve", metavar="SIZE", help="Activations and overhead per GPU.  [default: estimated]")
@click.option("--block-size", type=int, help="Tokens per block.  [default: 16]")
@click.option("--max-model-len", type=int, help="Longest request.  [default: the model's]")
@click.option("--max-num-batched-tokens", type=int, help="Tokens per step.  [default: 8192]")
@click.option("--max-num-seqs", type=int, help="Requests at once (for the reserve).  [default: 256]")
@click.option("--num-gpu-blocks-override", type=int, help="Use this many blocks whatever the memory.")
@click.option("--disable-hybrid-kv-cache-manager", is_flag=True, help="Plan sliding layers as full ones.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
def command(serve: str | None, as_json: bool, **options: Any) -> None:
    """How many KV blocks a model, GPU and flags give.

    \b
    kvsim plan --model llama-3.1-8b --gpu h100
    kvsim plan --model gpt-oss-120b --gpu h100 -tp 2 --block-size 32 --kv-cache-dtype fp8
    kvsim plan --model ./config.json --kv-cache-memory 10.5GiB --max-model-len 32768
    """
    from pydantic import ValidationError

    from sim.timing.memory import MemoryConfig, plan_memory

    memory: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    if serve is not None:
        memory, engine = _from_serve_line(serve)
    for name, value in options.items():
        if value is None or value == () or value is False:
            continue
        (memory if name in MemoryConfig.model_fields else engine)[name] = (
            list(value) if name == "kv_cache_memory" else value
        )
    _check_engine(engine)
    try:
        config = MemoryConfig(**memory)
    except ValidationError as error:
        raise ConfigError("\n".join(_fault(detail) for detail in error.errors())) from None
    plan = plan_memory(config, **engine)
    if as_json:
        click.echo(json.dumps(plan.account.as_dict(), indent=2))
        return
    for line in plan.account.lines():
        click.echo(line)


_PLANNED = ("block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks_override")


def _from_serve_line(line: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from sim.timing.serve_line import parse_serve_line

    found = parse_serve_line(line)
    for note in found.notes():
        click.echo(note, err=True)
    kept = {name: found.engine[name] for name in (*_PLANNED, "disable_hybrid_kv_cache_manager") if name in found.engine}
    return {"model": found.model, **found.memory}, kept


def _check_engine(engine: dict[str, Any]) -> None:
    faults = [
        f"--{name.replace('_', '-')}: {engine[name]} is absurd; it must be at least 1 and below 2³¹"
        for name in _PLANNED
        if name in engine and not 1 <= engine[name] < 1 << 31
    ]
    if faults:
        raise ConfigError("\n".join(faults))


def _fault(detail: Any) -> str:
    where = f"--{str(detail['loc'][0]).replace('_', '-')}: " if detail["loc"] else ""
    what = detail["msg"].removeprefix("Value error, ")
    found = f" (found {detail['input']!r})" if detail["loc"] and detail["type"] != "value_error" else ""
    return f"{where}{what}{found}"
