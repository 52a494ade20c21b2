"""Capacity curves in words and as a table of text."""

from __future__ import annotations

from sim.analysis.curves import Curve, CurveSet, Need


def curve_lines(curves: CurveSet, block_bytes: int | None = None) -> list[str]:
    """The workload, the hit rate of every policy at every capacity, and what each needs."""
    counted = curves.requests - curves.warmup_requests
    lines = [
        f"{curves.requests:,} requests, {curves.accesses:,} blocks of {curves.block_size} tokens, "
        f"{curves.unique_blocks:,} different; the largest request has {curves.largest_request_blocks:,}",
        f"hit blocks / all blocks over {counted:,} requests, one after another"
        + (f" (the first {curves.warmup_requests:,} are warm-up)" if curves.warmup_requests else ""),
        "",
    ]
    lines += _table(curves, block_bytes)
    best = curves.infinite
    lines += [
        "",
        f"infinite cache: {best.hit_rate:.4f} of the blocks, {best.full_block_hit_rate:.4f} of the full ones, "
        f"{best.token_hit_rate:.4f} of the tokens",
    ]
    lines += [f"{curve.policy}: {_needs(curve, block_bytes)}" for curve in curves.curves]
    return lines


def _table(curves: CurveSet, block_bytes: int | None) -> list[str]:
    head = ["blocks", *(["GiB"] if block_bytes else []), *(curve.policy for curve in curves.curves)]
    rows = [head]
    for index, point in enumerate(curves.curves[0].points):
        size = [f"{point.capacity_blocks * block_bytes / 2**30:.2f}"] if block_bytes else []
        rates = [f"{curve.points[index].rates.hit_rate:.4f}" for curve in curves.curves]
        rows.append([f"{point.capacity_blocks:,}", *size, *rates])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _needs(curve: Curve, block_bytes: int | None) -> str:
    found = [need for need in curve.needs if need.capacity_blocks is not None]
    if not found:
        words = "reaches half of what is possible at none of these capacities"
    else:
        words = ", ".join(_need(need, block_bytes) for need in found)
        words = f"{words} of what is possible"
        lacking = [f"{100 * need.share:.0f} %" for need in curve.needs if need.capacity_blocks is None]
        if lacking:
            words += f"; {' and '.join(lacking)} is out of reach of these capacities"
    if curve.knee_blocks is not None:
        words += f"; knee at {_blocks(curve.knee_blocks, block_bytes)}"
    return words


def _need(need: Need, block_bytes: int | None) -> str:
    blocks = _blocks(need.capacity_blocks or 0, block_bytes)
    remark = "" if need.precision == "exact" else f" ({need.precision})"
    return f"{blocks}{remark} for {100 * need.share:.0f} %"


def _blocks(count: int, block_bytes: int | None) -> str:
    size = f" ({count * block_bytes / 2**30:.1f} GiB)" if block_bytes else ""
    return f"{count:,} block{'' if count == 1 else 's'}{size}"
