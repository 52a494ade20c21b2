"""The tables of a run: every column's type, unit and meaning, in one place for the writer, the reports and the docs."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["int64", "uint64", "float64", "string"]


class Column(NamedTuple):
    """One column: its name, Parquet type, unit ("" for a plain number or text), meaning, and whether it may be null.

    `repeats`: many rows one after another have the same number, so that compression alone makes it small.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    nullable: bool = False
    repeats: bool = False


def _int(name: str, unit: str, meaning: str, nullable: bool = False) -> Column:
    return Column(name, "int64", unit, meaning, nullable)


def _seconds(name: str, meaning: str, nullable: bool = False) -> Column:
    return Column(name, "float64", "s", meaning, nullable)


def _text(name: str, meaning: str, nullable: bool = False) -> Column:
    return Column(name, "string", "", meaning, nullable)


def _repeated(column: Column) -> Column:
    return column._replace(repeats=True)


REQUESTS = (
    _int("request_index", "", "number of the request, in order of arrival from 0"),
    _text("request_id", "its name in the workload"),
    _text("category", "the workload's category, empty when there is none"),
    _text("session", "the session it belongs to", nullable=True),
    _int("turn", "", "its number within the session, from 0"),
    _seconds("arrival_s", "when it arrived at the engine (null: it never did, its predecessor did not finish)", True),
    _seconds("first_scheduled_s", "start of the first step that computed a token of it", True),
    _seconds("first_token_s", "end of the step that sampled its first token", True),
    _seconds("finish_s", "when it ended, whatever the status"),
    _int("prompt_tokens", "tokens", "length of the prompt"),
    _int("output_tokens", "tokens", "tokens that it answered before it ended"),
    _int("cached_tokens", "tokens", "prefix cache hit at its first admission"),
    _int("recomputed_tokens", "tokens", "tokens computed a second time, because a preemption had lost them"),
    _int("preemptions", "", "times it was preempted"),
    _text("status", "finished, aborted, rejected or cancelled"),
    _text("reason", "why it was rejected, aborted or cancelled; which stop ended it otherwise", nullable=True),
    _int("priority", "", "smaller goes first under the priority policy"),
    _text("lora", "name of its LoRA adapter", nullable=True),
    _text("cache_salt", "its cache salt", nullable=True),
    _int("mm_items", "", "multimodal items in the prompt"),
    _int("phantom_hit_tokens", "tokens", "hits on blocks whose content was never computed (see docs/fidelity.md)"),
    _text("source", "where the workload has it from (file:line)"),
)

STEPS = (
    _int("step", "", "number of the step, from 0"),
    _seconds("start_s", "when the step began"),
    _seconds("duration_s", "how long it took"),
    _int("running_requests", "", "running requests once the step was scheduled"),
    _int("waiting_requests", "", "waiting requests once the step was scheduled"),
    _int("prefill_requests", "", "requests of the step that computed a chunk of known tokens"),
    _int("prefill_tokens", "tokens", "tokens of these chunks"),
    _int("decode_requests", "", "requests of the step that computed one token after their prompt"),
    _int("context_tokens", "tokens", "tokens computed earlier (or found in the cache) that the step's requests read"),
    _int("encoder_tokens", "tokens", "embeddings that the multimodal encoder made"),
    _int("free_blocks", "blocks", "blocks in the free queue once the step was scheduled"),
    Column("kv_usage", "float64", "share", "share of usable blocks that requests hold once the step was scheduled"),
    _int("preemptions", "", "requests preempted in this step"),
    _int("finished_requests", "", "requests that ended at the end of this step"),
    _int("query_tokens", "tokens", "tokens looked up in the prefix cache by requests admitted in this step"),
    _int("hit_tokens", "tokens", "of these, tokens found"),
    _int("preempted_query_tokens", "tokens", "the same for requests that come back from a preemption: looked up"),
    _int("preempted_hit_tokens", "tokens", "and found"),
    _int("evicted_blocks", "blocks", "cached blocks that were evicted to make room in this step"),
)

EVICTIONS = (
    _repeated(_seconds("time_s", "start of the step that evicted it")),
    _repeated(_int("step", "", "that step")),
    _int("block_id", "", "the block"),
    _repeated(_int("group", "", "KV cache group of the key that was lost")),
    Column("block_hash", "uint64", "", "low 64 bits of the block's hash, or its content fingerprint"),
    _int("depth_blocks", "blocks", "place in its chain: 0 = the first block of a prompt"),
    _repeated(_seconds("lifetime_s", "since the block was allocated for this content")),
    _repeated(_seconds("idle_s", "since its last use, when the last request that held it let go")),
    _repeated(_int("hits", "", "times that a request found it in the cache")),
    _repeated(_int("evicted_for_request_index", "", "the request that needed the room")),
    _repeated(_int("owner_request_index", "", "the request that computed it")),
)

STALLS = (
    _int("step", "", "the step at whose end the late token came"),
    _int("request_index", "", "the request that waited for it"),
    _seconds("gap_s", "time since this request's token before"),
)

MISSES = (
    _seconds("time_s", "when the step of the admission was scheduled"),
    _int("step", "", "that step"),
    _int("request_index", "", "the request that was admitted, for the first time or after a preemption"),
    _text("category", "its category"),
    _int("first_block", "", "place of the run's first block in the request's sequence, from 0"),
    _int("blocks", "blocks", "how many blocks one after another missed for the same cause"),
    _int("tokens", "tokens", "tokens of these blocks"),
    _text("cause", "why they missed, see docs/misses.md"),
    _text("differs", "where the cause is key_differs: image, lora, salt, or several of them", True),
    _int("evicted_row", "", "row of `evictions` that removed the run's first block (unreachable: the gap's)", True),
    _int("evicted_step", "", "step in which they were evicted", True),
    _seconds("evicted_s", "when that was", True),
)

EVICTION_COSTS = (
    _int("recomputed_tokens", "tokens", "tokens that admissions did not find because of this eviction (0: none)"),
    _int("next_request_index", "", "request whose admission asked for the content next (null: none did)", True),
    _seconds("next_wanted_s", "when that was", True),
    _int(
        "better_victim",
        "",
        "1 if the eviction had a cost, and a block stayed free whose content was wanted later, or never",
    ),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "requests": REQUESTS,
    "steps": STEPS,
    "evictions": EVICTIONS,
    "stalls": STALLS,
    "misses": MISSES,
    "eviction_costs": EVICTION_COSTS,
}

MEANINGS = {
    "requests": "one row per request, in the order in which they ended",
    "steps": "one row per engine step",
    "evictions": "one row per evicted block, in order of eviction",
    "stalls": "one row per output token that did not come one step after the request's token before it "
    "(its request was preempted or passed over): with `steps`, the exact inter-token latencies",
    "misses": "one row per run of full blocks that an admission did not find, for one cause and evicted in one step, "
    "in order of admission (`recording.misses: true`)",
    "eviction_costs": "one row per row of `evictions`, in the same order (`recording.misses: true`)",
}
