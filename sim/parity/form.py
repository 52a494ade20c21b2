"""The form of recordings: what must stand where, checked before anything is replayed.

A `Check` looks at a value and raises `FormError`, which says where it stands, what it is and what
would be right.  The forms of all kinds of recordings are at the end; docs/fidelity.md tells them in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Check = Callable[[str, object], None]
# beyond these a file is broken rather than large
MAX_BLOCKS = 100_000_000
MAX_TOKENS = 1_000_000_000
_SHOWN = 60


class FormError(ValueError):
    """A value of the wrong form; the message names its place, what was given and what is right."""


def _wrong(where: str, wanted: str, value: object) -> FormError:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return FormError(f"{where} must be {wanted}, got {shown}")


def whole(low: int = 0, high: int | None = None) -> Check:
    """A whole number of at least `low` and at most `high`."""
    wanted = f"a whole number of at least {low}" + (f" and at most {high}" if high is not None else "")

    def check(where: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
            raise _wrong(where, wanted, value)

    return check


def number(low: float, high: float = math.inf) -> Check:
    """A finite number in ``[low, high]``."""

    def check(where: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise _wrong(where, f"a number from {low} to {high}", value)
        if value == math.inf:
            raise _wrong(where, "a finite number", value)

    return check


def text(where: str, value: object) -> None:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise _wrong(where, "a text", value)


def flag(where: str, value: object) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)


def mapping(where: str, value: object) -> None:
    """An object, whatever it holds."""
    if not isinstance(value, Mapping):
        raise _wrong(where, "an object", value)


def rows(where: str, value: object) -> None:
    """A list, whatever it holds."""
    if not isinstance(value, list):
        raise _wrong(where, "a list", value)


def choice(*known: str) -> Check:
    """One of some texts."""

    def check(where: str, value: object) -> None:
        if not isinstance(value, str) or value not in known:
            raise _wrong(where, f"one of {', '.join(known)}", value)

    return check


def optional(inner: Check) -> Check:
    """Null, or what `inner` wants."""
    return lambda where, value: None if value is None else inner(where, value)


def list_of(inner: Check, *, least: int = 0) -> Check:
    """A list of at least `least` such values."""

    def check(where: str, value: object) -> None:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        if len(value) < least:
            raise FormError(f"{where} is empty" if not value else f"{where} needs at least {least} entries")
        for index, entry in enumerate(value):
            inner(f"{where}[{index}]", entry)

    return check


def fields(needed: Mapping[str, Check], allowed: Mapping[str, Check] | None = None, what: str = "field") -> Check:
    """An object with all fields of `needed`, perhaps some of `allowed`, and no other."""
    known = {**needed, **(allowed or {})}

    def check(where: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise _wrong(where, "an object", value)
        for name, entry in value.items():
            inner = known.get(name)
            if inner is None:
                raise FormError(f"{where}: unknown {what} {name!r}; known: {', '.join(sorted(known))}")
            inner(f"{where}.{name}", entry)
        for name in needed:
            if name not in value:
                raise FormError(f"{where}: the {what} {name!r} is missing")

    return check


def _segment(where: str, value: object) -> None:
    """``[seed, n]`` or ``["reply", request, start, n]``."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) not in (2, 4):
        raise _wrong(where, '[seed, tokens] or ["reply", request, start, tokens]', value)
    if len(value) == 4 and value[0] != "reply":
        raise _wrong(where, '["reply", request, start, tokens]', value)
    for index, entry in enumerate(value[1:] if len(value) == 4 else value):
        low = 0 if index or len(value) == 4 else -MAX_TOKENS
        whole(low, MAX_TOKENS)(f"{where}[{index + (len(value) == 4)}]", entry)


def _group(where: str, value: object) -> None:
    fields(
        {"kind": choice("full", "sliding_window"), "block_size": whole(1, MAX_TOKENS)},
        {"window": optional(whole(1, MAX_TOKENS))},
    )(where, value)


_TOKENS = whole(1, MAX_TOKENS)
_ENGINE = fields(
    {
        "block_size": _TOKENS,
        "num_gpu_blocks": whole(1, MAX_BLOCKS),
        "max_num_seqs": whole(1),
        "max_num_batched_tokens": _TOKENS,
        "max_model_len": _TOKENS,
        "hash_algo": choice("sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "builtin"),
    },
    {
        "enable_prefix_caching": flag,
        "enable_chunked_prefill": flag,
        "policy": choice("fcfs", "priority"),
        "long_prefill_token_threshold": whole(0),
        "watermark": number(0, 1),
        "scheduler_reserve_full_isl": flag,
        "max_loras": optional(whole(0)),
        "disable_chunked_mm_input": flag,
        "encoder_compute_budget": optional(whole(0)),
        "encoder_cache_size": optional(whole(0)),
        "groups": optional(list_of(_group, least=1)),
        "retention_interval": optional(whole(0)),
        "multimodal": flag,
        "async_scheduling": flag,
    },
    "engine setting",
)
_PROMPT: dict[str, Check] = {"prompt": list_of(_segment)}
_IDENTITY: dict[str, Check] = {
    "priority": whole(-MAX_TOKENS),
    "cache_salt": optional(text),
    "lora": optional(fields({"name": text, "id": whole(1)}, {"path": lambda where, value: _path(where, value)})),
    "mm": optional(list_of(fields({"hash": text, "offset": whole(0, MAX_TOKENS), "length": whole(1, MAX_TOKENS)}))),
}


def _path(where: str, value: object) -> None:
    if not isinstance(value, str):
        raise _wrong(where, "a text", value)


_REQUEST = fields({"id": text, "arrival_step": whole(0), "output_tokens": whole(0, MAX_TOKENS), **_PROMPT}, _IDENTITY)
_ABORT = fields({"id": text, "step": whole(0)})
_ENDED: dict[str, Check] = {"step": whole(0), "finished": rows, "free_queue_sha_after": text}
_SCHEDULED: dict[str, Check] = {
    "scheduled": mapping,
    "computed_before": mapping,
    "block_ids": mapping,
    "preempted": rows,
    "encoder_inputs": mapping,
    "running": rows,
    "waiting": whole(0),
    "num_free_blocks": whole(0),
    "free_queue_sha": text,
    "free_queue_head": rows,
    "events": rows,
    "prefix_cache": mapping,
}
_APPLIED: dict[str, Check] = {"applied": optional(whole(0)), "events_after": rows}
_SYNC_STEP = fields({**_ENDED, **_SCHEDULED}, what="step field")
_ASYNC_TURN = fields({**_ENDED, **_SCHEDULED, **_APPLIED, "samples": rows}, what="step field")
_IDLE_TURN = fields({**_ENDED, **_APPLIED, "scheduled": lambda where, value: None}, what="step field")


def _async_turn(where: str, value: object) -> None:
    """A turn of the asynchronous loop; `scheduled` is null in one without requests."""
    idle = isinstance(value, Mapping) and "scheduled" in value and value["scheduled"] is None
    (_IDLE_TURN if idle else _ASYNC_TURN)(where, value)


_CHECKPOINT = fields(
    {
        **dict.fromkeys(
            ("step", "executed", "queries", "hits", "preempted_queries", "preempted_hits", "preemptions",
             "scheduled_tokens", "evicted_blocks", "finished", "num_free_blocks", "running", "waiting"),
            whole(0),
        ),
        "free_queue_sha_after": text,
    },
    what="checkpoint field",
)  # fmt: skip
_SCENARIO: dict[str, Check] = {"reference": text, "engine": _ENGINE, "requests": list_of(_REQUEST)}
_BESIDE: dict[str, Check] = {"name": text, "aborts": list_of(_ABORT)}


def check_scenario(where: str, recording: Mapping[str, object]) -> None:
    """Check a recording of steps or checkpoints.  Raises `FormError`."""
    engine = recording.get("engine")
    turns = isinstance(engine, Mapping) and engine.get("async_scheduling") is True
    if "steps" in recording:
        form = fields(
            {**_SCENARIO, "steps": list_of(_async_turn if turns else _SYNC_STEP, least=1)}, _BESIDE, "top-level field"
        )
    else:
        form = fields(
            {**_SCENARIO, "every": whole(1), "checkpoints": list_of(_CHECKPOINT, least=1)}, _BESIDE, "top-level field"
        )
    form(where, recording)
    requests = recording["requests"]
    assert isinstance(requests, list)
    names: set[str] = set()
    for index, request in enumerate(requests):
        if request["id"] in names:
            raise FormError(f"{where}.requests[{index}]: the id {request['id']!r} is there twice")
        names.add(request["id"])
        tokens = sum(part[-1] for part in request["prompt"])
        longest = recording["engine"]["max_model_len"]  # type: ignore[index]
        if tokens > longest:
            raise FormError(f"{where}.requests[{index}]: a prompt of {tokens} tokens, max_model_len is {longest}")
        end = 0
        for position, item in enumerate(request.get("mm") or []):
            if item["offset"] < end or item["offset"] + item["length"] > tokens:
                raise FormError(
                    f"{where}.requests[{index}].mm[{position}] must begin behind the item before it (which ends at "
                    f"{end}) and end within the prompt of {tokens} tokens"
                )
            end = item["offset"] + item["length"]


check_hashes = fields(
    {
        "vectors": list_of(
            fields(
                {
                    "algo": choice("sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "builtin"),
                    "pythonhashseed": optional(text),
                    "none_hash": text,
                    "block_size": _TOKENS,
                    "request": fields(
                        _PROMPT,
                        {**_IDENTITY, "name": text, "id": text, "output_tokens": whole(0), "arrival_step": whole(0)},
                    ),
                    "block_hashes": list_of(text),
                }
            ),
            least=1,
        )
    },
    {"reference": text},
    "top-level field",
)

_PLAN_INPUTS: dict[str, Check] = {
    "model": text,
    "block_size": _TOKENS,
    "kv_cache_dtype": text,
    "max_model_len": _TOKENS,
    "max_num_batched_tokens": _TOKENS,
    "available_memory_gib": list_of(number(-MAX_TOKENS, MAX_TOKENS), least=1),
    "num_gpu_blocks_override": optional(whole(1, MAX_BLOCKS)),
    "page_size_bytes": whole(1),
}


def _plan(where: str, value: object) -> None:
    """A plan, or the text with which it was refused."""
    result = {"refused": text} if isinstance(value, Mapping) and "refused" in value else {"plan": mapping}
    fields({**_PLAN_INPUTS, **result}, {"disable_hybrid_kv_cache_manager": flag})(where, value)


check_plans = fields({"plans": list_of(_plan, least=1)}, {"reference": text}, "top-level field")

_OBSERVATION = fields(
    {"requests": whole(0), "queries": whole(0), "hits": whole(0), "hit_rate_after": number(0, 1)}, {"reset": flag}
)


def check_metrics(where: str, recording: Mapping[str, object]) -> None:
    """Check series of observations of the hit-rate window.  Raises `FormError`."""
    series = {name: list_of(_OBSERVATION, least=1) for name in recording if name not in ("interval", "reference")}
    fields({"interval": whole(1), **series}, {"reference": text})(where, recording)
    if not series:
        raise FormError(f"{where}: no series of observations")
