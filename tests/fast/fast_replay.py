"""Requests and engines of recordings for the fast path, used by its tests."""

from pathlib import Path

import numpy as np

from sim.core.hashing import get_hash_function, hash_request_tokens
from sim.fast.request import FastRequest
from sim.parity.recordings import load, make_request, scheduler_config
from workloads.spec import MultiModalItem, RequestSpec, Segment, merge_pieces

GOLDEN = Path(__file__).parents[1] / "golden"


def read(name):
    return load(GOLDEN / f"{name}.json.gz")


def covered(recording):
    """Whether the fast path is meant to cover a recording: one full-attention group."""
    groups = recording["engine"].get("groups") or [{"kind": "full"}]
    return len(groups) == 1 and groups[0]["kind"] == "full"


def names(folder):
    """The recordings of a folder that the fast path covers."""
    found = sorted(f"{folder}/{path.name.removesuffix('.json.gz')}" for path in (GOLDEN / folder).glob("*.json.gz"))
    return [name for name in found if covered(read(name))]


def fast_config(engine):
    return scheduler_config(Path(), engine)


def fast_requests(recording, config):
    """(request, low 64 bits of its real block hashes, step of arrival) of each request."""
    block_size = config.groups[0].block_size
    function = get_hash_function(recording["engine"]["hash_algo"])
    out = []
    for index, entry in sorted(enumerate(recording["requests"]), key=lambda item: item[1]["arrival_step"]):
        full = make_request(Path(), index, entry, None, block_size)
        full.num_output_tokens = full.max_tokens
        hashes = hash_request_tokens(function, block_size, full) if config.enable_prefix_caching else []
        request = FastRequest(
            index,
            full.request_id,
            prompt_tokens=full.num_prompt_tokens,
            answer_tokens=full.max_tokens,
            max_tokens=full.max_tokens,
            block_size=block_size,
            max_model_len=config.max_model_len,
            arrival_s=entry["arrival_step"],
            priority=full.priority,
            lora=full.lora_request,
            items=tuple(
                MultiModalItem(name, at.offset, at.length)
                for name, at in zip(full.mm_hashes, full.mm_positions, strict=True)
            ),
        )
        low = np.array([int.from_bytes(value[-8:], "big") for value in hashes], dtype=np.uint64)
        out.append((request, low, entry["arrival_step"]))
    return out


def fast_specs(recording):
    """The requests of a recording as a workload's: a segment is a slice of the stream that its seed names."""
    specs = []
    for index, entry in enumerate(recording["requests"]):
        pieces = []
        for part in entry["prompt"]:
            if part[0] == "reply":
                _, source, start, length = part
                pieces.append(Segment(1 << 40 | source, start - specs[source].prompt_tokens, length))
            else:
                pieces.append(Segment(part[0], 0, part[1]))
        items = tuple(MultiModalItem(item["hash"], item["offset"], item["length"]) for item in entry.get("mm") or ())
        specs.append(
            RequestSpec(
                entry["id"],
                float(entry["arrival_step"]),
                merge_pieces(pieces),
                entry["output_tokens"],
                1 << 40 | index,
                mm_items=items,
                priority=entry.get("priority", 0),
            )
        )
    return specs
