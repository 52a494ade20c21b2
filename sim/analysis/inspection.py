"""Everything `kvsim workload inspect` knows of a workload, in one or two passes over its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sim.analysis.prefix_tree import PrefixTree
from sim.analysis.reuse import Reuse, keyed_pieces
from sim.analysis.reuse_causes import MAX_REQUESTS, ContentSeen, as_rows, causes, headline, key_effects
from workloads.spec import RequestSpec
from workloads.statistics import WorkloadStatistics


class Inspection:
    """A workload looked at: `statistics` and `reuse` hold the rows for figures, `result` all numbers."""

    def __init__(self, statistics: WorkloadStatistics, reuse: Reuse, result: dict[str, Any]) -> None:
        self.statistics = statistics
        self.reuse = reuse
        self.result = result


def inspect_workload(
    specs: Callable[[], Iterator[RequestSpec]],
    block_size: int,
    progress: Callable[[Iterable[RequestSpec]], Iterable[RequestSpec]] = lambda stream: stream,
) -> Inspection:
    """Look at a workload.

    Beyond `MAX_REQUESTS` requests, what costs memory for each of them is left out, and the result's ``why`` says so:
    content behind another beginning, and the effects of salts, LoRA adapters and images.

    Args:
        specs: starts reading the requests; called a second time only if there are salts, LoRA adapters or images.
        block_size: tokens of a block, > 0, for the shares that depend on it.
        progress: wraps the stream, to show how far it is.

    Raises:
        WorkloadError: what reading raises.
    """
    statistics, reuse = WorkloadStatistics(), Reuse()
    content = ContentSeen()
    seen: int | None = 0
    names: list[str] = []
    for count, spec in enumerate(progress(specs()), 1):
        statistics.add(spec)
        reuse.add(spec)
        if count <= MAX_REQUESTS:
            assert seen is not None
            seen += content.add(keyed_pieces(spec.prompt, spec.mm_items))
            names.append(spec.source or spec.request_id)
        elif seen is not None:
            seen = None
            content = ContentSeen()
            names = []
    what = statistics.result()
    features = what["features"]
    present = [
        name
        for name, there in (
            ("salts", features["salted_requests"]),
            ("lora", features["lora_requests"]),
            ("images", features["image_requests"]),
        )
        if there
    ]
    popularity, largest, longest = reuse.popularity(), reuse.largest_prefixes(), reuse.longest_shared()
    reuse.tree = PrefixTree()  # its memory is needed no longer
    effects = key_effects(progress(specs()), present) if present and seen is not None else None
    hit, tokens = reuse.hit_and_prompt_tokens()
    found = causes(tokens, hit, block_size, seen, effects)
    for row in [*largest, *longest]:
        number = row["first_request"]
        row["first_source"] = names[number] if number < len(names) else f"request number {number}"
    result = {
        **what,
        "reuse": reuse.result(block_size),
        "popularity": popularity,
        "largest_prefixes": largest,
        "longest_shared_prefixes": longest,
        "why": {"answer": headline(tokens, hit, block_size, found), "causes": as_rows(found)},
    }
    if seen is None:
        result["why"]["not_counted"] = (
            f"more than {MAX_REQUESTS:,} requests: content behind another beginning and the effects of salts, LoRA and "
            "images were not counted"
        )
    result["definitions"] = {**result.pop("definitions"), **result["reuse"].pop("definitions")}
    return Inspection(statistics, reuse, result)
