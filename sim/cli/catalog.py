"""`kvsim models` and `kvsim gpus`: what the catalog knows, and where each figure is from."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click


@click.command()
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON.")
def models(names: tuple[str, ...], as_json: bool) -> None:
    """List the models of the catalog, or show those NAMED with their sources."""
    from sim.timing.catalog import all_models, find_model

    found = [find_model(name) for name in names] or all_models()
    if as_json:
        click.echo(json.dumps([model.model_dump(exclude_none=True) for model in found], indent=2))
        return
    if names:
        for model in found:
            _show(model.model_dump(exclude_none=True))
        return
    rows: list[tuple[str, ...]] = [
        ("model", "params", "active", "layers", "sliding", "heads", "kv", "head", "kv/token", "weights", "size")
    ]
    for model in found:
        kinds = model.layer_kinds()
        bytes_per_token = model.kv_bytes_per_token_and_layer() * len(kinds)
        rows.append(
            (
                model.name.split("/")[-1],
                f"{model.total_params / 1e9:.1f}B",
                f"{model.active_params / 1e9:.1f}B",
                str(len(kinds)),
                f"{model.sliding_layers}×{model.sliding_window}" if model.sliding_layers else "",
                str(model.num_attention_heads),
                "mla" if model.mla else str(model.num_key_value_heads),
                str(model.mla.kv_lora_rank + model.mla.qk_rope_head_dim if model.mla else model.head_size),
                f"{bytes_per_token / 1024:.0f} KiB",
                model.weights,
                f"{model.weight_bytes() / (1 << 30):.1f} GiB",
            )
        )
    _table(rows)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON.")
def gpus(names: tuple[str, ...], as_json: bool) -> None:
    """List the GPUs of the catalog, or show those NAMED with their sources."""
    from sim.timing.catalog import all_gpus, find_gpu

    found = [find_gpu(name) for name in names] or all_gpus()
    if as_json:
        click.echo(json.dumps([gpu.model_dump(exclude_none=True) for gpu in found], indent=2))
        return
    if names:
        for gpu in found:
            _show(gpu.model_dump(exclude_none=True))
        return
    rows: list[tuple[str, ...]] = [("GPU", "memory", "bandwidth", "bf16", "fp8", "fp4", "link", "PCIe", "interconnect")]
    for gpu in found:
        rates = [gpu.dense_tflops.get(name) for name in ("bf16", "fp8", "fp4")]
        rows.append(
            (
                gpu.name,
                f"{gpu.memory_gib:g} GiB",
                f"{gpu.bandwidth_gbps:,.0f} GB/s",
                *("–" if rate is None else f"{rate:,.0f} TF" for rate in rates),
                f"{gpu.interconnect_gbps:g} GB/s" if gpu.interconnect_gbps else "–",
                f"{gpu.pcie_gbps:g} GB/s",
                gpu.interconnect,
            )
        )
    _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def _show(entry: dict[str, object]) -> None:
    for name, value in entry.items():
        click.echo(
            f"{name:<22} {json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value}"
        )
    click.echo()
