"""Readers of traces and generators of traffic by name.

A new trace format is one file in `workloads/readers` and one line in `READERS`; new traffic is one
file in `workloads/generators` and one line in `GENERATORS`.  Modules are imported when they are
used, so this table costs nothing.

A reader module has ``Options`` (a pydantic model), ``sniff(head, filename) -> bool`` and
``read(path, options, log) -> Iterator[RequestSpec]``.  A generator module has ``Params`` and
``generate(params, rng, log, prefix) -> Iterator[RequestSpec]``, where `rng` is a
`numpy.random.SeedSequence` to spawn from.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.spec import RequestSpec


class Entry(NamedTuple):
    """A module and what it is for, in one line.

    `marks` are texts that all stand in the head of each file of a format; where one is missing, the reader need not
    be imported and asked.
    """

    module: str
    summary: str
    marks: tuple[str, ...] = ()


# In the order in which content is tried: the first format that knows a file reads it.
READERS: dict[str, Entry] = {
    "native": Entry("workloads.readers.native", "kvsim's own JSONL: everything a request can say", ("kvsim_workload",)),
    "weka": Entry(
        "workloads.readers.weka",
        "WEKA kv-cache-tester: closed-loop agent sessions, one a line (JSONL)",
        ("requests", "block_size"),
    ),
    "bailian": Entry(
        "workloads.readers.bailian",
        "Alibaba Bailian (Qwen): chats with parents, blocks of 16 (JSONL)",
        ("chat_id", "parent_chat_id", "hash_ids"),
    ),
    "lmcache": Entry(
        "workloads.readers.lmcache",
        "LMCache agent traces: Mooncake's form, full blocks only (JSONL)",
        ("session_id", "input_length", "hash_ids"),
    ),
    "mooncake": Entry(
        "workloads.readers.mooncake", "Mooncake FAST'25 and variants: chained hash ids (JSONL)", ("hash_ids",)
    ),
    "ragpulse": Entry(
        "workloads.readers.ragpulse",
        "RAGPulse: prompts of shared passages (folder or .tgz)",
        ("0_trace.jsonl", "2_passages.jsonl"),
    ),
    "servegen": Entry(
        "workloads.readers.servegen",
        "ServeGen client models, images too; generates (folder or .tgz)",
        ("chunk-", "-trace.csv"),
    ),
    "azure": Entry(
        "workloads.readers.azure",
        "Azure LLM inference traces: lengths and times only (CSV)",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    ),
    "burstgpt": Entry(
        "workloads.readers.burstgpt",
        "BurstGPT: lengths, times and failures, both layouts (CSV)",
        ("Request tokens", "Response tokens"),
    ),
    "token_ids": Entry(
        "workloads.readers.token_ids", "prompts as token ids: prompt_token_ids, input_tok_ids (JSONL)", ("_tok",)
    ),
    "chat_text": Entry("workloads.readers.chat_text", "text prompts and chats, tokenised by a local file (JSONL)"),
}

GENERATORS: dict[str, Entry] = {
    "shared_prefix": Entry(
        "workloads.generators.shared_prefix", "system prompts with Zipf popularity, each followed by a text of its own"
    ),
    "prefix_tree": Entry(
        "workloads.generators.prefix_tree",
        "prefixes that branch: tools, then system prompts, then users, then a text of its own",
    ),
    "multi_turn": Entry(
        "workloads.generators.multi_turn",
        "chats in which the next turn contains the answer and comes after it and a think time",
    ),
    "agents": Entry(
        "workloads.generators.agents", "agents: tool loops with growing context, sub-agents that share a prefix"
    ),
    "retrieval": Entry(
        "workloads.generators.retrieval", "questions with documents from a pool, in one of several orders"
    ),
    "multimodal": Entry("workloads.generators.multimodal", "questions about images from a pool with Zipf popularity"),
    "multimodal_chat": Entry(
        "workloads.generators.multimodal_chat", "chats in which images return with every later turn"
    ),
    "lora_tenants": Entry(
        "workloads.generators.lora_tenants", "tenants with a LoRA adapter each, over one system prompt or their own"
    ),
    "salted_tenants": Entry(
        "workloads.generators.salted_tenants", "tenants kept apart by a cache salt, over one system prompt"
    ),
    "vllm_random": Entry(
        "workloads.generators.vllm_random", "vLLM benchmark `random`: 1,024 tokens in, 128 out, nothing shared"
    ),
    "vllm_prefix_repetition": Entry(
        "workloads.generators.vllm_prefix_repetition",
        "vLLM benchmark `prefix_repetition`: 10 prefixes of 256 tokens, suffixes of 256, 128 out",
    ),
    "vllm_random_mm": Entry(
        "workloads.generators.vllm_random_mm",
        "vLLM benchmark `random-mm`: random prompts, each with new images of 256² or 720×1280 pixels",
    ),
    "vllm_multi_turn": Entry(
        "workloads.generators.vllm_multi_turn",
        "vLLM multi-turn benchmark: conversations with a common and an own prefix, a few clients in closed loop",
    ),
    "sglang_generated_shared_prefix": Entry(
        "workloads.generators.sglang_generated_shared_prefix",
        "SGLang benchmark: 64 groups × 16 prompts, system prompts of 2,048 tokens, questions of 128, 256 out",
    ),
}


def reader(name: str) -> Any:
    """The module of a reader.

    Raises:
        WorkloadError: no reader has this name; the message has the nearest names.
    """
    return _module("trace format", READERS, name)


def generator(name: str) -> Any:
    """The module of a generator.

    Raises:
        WorkloadError: no generator has this name; the message has the nearest names.
    """
    return _module("workload kind", GENERATORS, name)


def parse_options(model: Any, values: Mapping[str, Any], where: str) -> Any:
    """`values` as an instance of a pydantic `model`.

    Raises:
        WorkloadError: one line per fault: ``where.key: what would be right``.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        lines = []
        for fault in error.errors():
            path = ".".join(str(part) for part in (where, *fault["loc"]) if part != "")
            message = fault["msg"].removeprefix("Value error, ")
            if fault["type"] == "extra_forbidden":
                known = list(model.model_fields)
                near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
                message = f"unknown option; {hint}"
            lines.append(f"{path}: {message}")
        raise WorkloadError("\n".join(lines)) from None


def detect(path: str | Path) -> str:
    """Name of the reader that knows this file (or folder, or .tgz), by its content.

    Raises:
        WorkloadError: the file is empty, or no reader knows it.
        OSError: the file cannot be opened.
    """
    from workloads.readers.files import read_head

    head = read_head(path)
    filename = Path(path).name
    for name, entry in READERS.items():
        if all(mark in head for mark in entry.marks) and reader(name).sniff(head, filename):
            return name
    raise WorkloadError(
        f"{path}: no known trace format; its first line is {head.splitlines()[0][:80]!r}; "
        f"name the format ({', '.join(READERS)})"
    )


def read_trace(
    path: str | Path,
    log: ReadLog,
    format: str = "auto",
    options: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Iterator[RequestSpec]:
    """The requests of a trace, as a stream in order of arrival.

    Args:
        path: the file (plain or gzip), folder or .tgz.
        log: receives what was skipped, changed or odd.
        format: a name of `READERS`, or ``auto`` to tell it from the content.
        options: the reader's settings by name; the model `Options` of its module says which.
        seed: for formats that are models rather than requests (ServeGen), unless `options` has one.

    Raises:
        WorkloadError: for a file or option that cannot be used (also while iterating).
        OSError: the file cannot be read.
    """
    name = detect(path) if format == "auto" else format
    module = reader(name)
    if format == "auto":
        log.note(f"{Path(path).name} was recognised as {name}")
    given = dict(options or {})
    if seed is not None and "seed" in module.Options.model_fields:
        given.setdefault("seed", seed)
    chosen = parse_options(module.Options, given, name)
    try:
        stream: Iterator[RequestSpec] = module.read(path, chosen, log)
    except WorkloadError as error:
        other = _looks_like(path) if format != "auto" else name
        if other in (name, None):
            raise
        raise WorkloadError(f"{error}\n{path}: its content looks like {other}, but it was read as {name}") from None
    return stream


def _looks_like(path: str | Path) -> str | None:
    """What `detect` says, None if it cannot tell."""
    try:
        return detect(path)
    except (WorkloadError, OSError):
        return None


def _module(what: str, table: Mapping[str, Entry], name: str) -> Any:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(table)}"
        raise WorkloadError(f"unknown {what} {name!r}; {hint}")
    return importlib.import_module(table[name].module)
