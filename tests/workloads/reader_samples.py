"""A tiny file of every registered format, and how to break it; shared by the tests of readers."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def jsonl(rows: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(row) for row in rows]


@dataclass(frozen=True)
class Sample:
    """A format's file as lines, and what a broken value in it looks like.

    `lines[row]` is a request's line; `broken` maps a kind of fault to the line that replaces it.
    """

    lines: list[str]
    row: int
    requests: int
    broken: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    archive: Callable[[list[str]], dict[str, str]] | None = None
    suffix: str = ".jsonl"
    wrong_column: tuple[str, str] = ("", "")

    def write(self, folder: Path, lines: list[str] | None = None, packed: bool = False, name: str = "sample") -> Path:
        """Write the file (or .tgz), plain or packed."""
        lines = self.lines if lines is None else lines
        if self.archive is not None:
            path = folder / f"{name}.tgz"
            with tarfile.open(path, "w:gz") as archive:
                for member, text in self.archive(lines).items():
                    data = text.encode()
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
            return path
        path = folder / f"{name}{self.suffix}{'.gz' if packed else ''}"
        data = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(data) if packed else data)
        return path


def changed(line: str, **values: Any) -> str:
    """A JSON line with other values; ... takes a key away."""
    row = json.loads(line)
    for key, value in values.items():
        if value is ...:
            del row[key]
        else:
            row[key] = value
    return json.dumps(row)


MOONCAKE = jsonl(
    [
        {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 10, "input_length": 1100, "output_length": 6, "hash_ids": [0, 2, 3]},
        {"timestamp": 10, "input_length": 512, "output_length": 7, "hash_ids": [0]},
        {"timestamp": 3000, "input_length": 1100, "output_length": 8, "hash_ids": [0, 2, 4]},
    ]
)
BAILIAN = jsonl(
    [
        {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, "output_length": 5, "type": "text",
         "turn": 1, "hash_ids": [0, 1]},
        {"chat_id": 2, "parent_chat_id": 1, "timestamp": 9.5, "input_length": 40, "output_length": 5, "type": "text",
         "turn": 2, "hash_ids": [0, 2, 3]},
        {"chat_id": 3, "parent_chat_id": -1, "timestamp": 10, "input_length": 16, "output_length": 5, "type": "search",
         "turn": 1, "hash_ids": [0]},
    ]
)  # fmt: skip
LMCACHE = jsonl(
    [
        {"session_id": "a", "timestamp": 0.0, "input_length": 20, "output_length": 5, "hash_ids": [0]},
        {"session_id": "a", "timestamp": 50.5, "input_length": 40, "output_length": 5, "hash_ids": [0, 1]},
        {"session_id": "b", "timestamp": 60.5, "input_length": 33, "output_length": 5, "hash_ids": [0, 2]},
    ]
)


def _weka(name: str, key: str) -> dict[str, Any]:
    def ids(*runs: tuple[int, int]) -> dict[str, Any]:
        if key == "hash_runs":
            return {key: [list(run) for run in runs]}
        return {key: [i for first, count in runs for i in range(first, first + count)]}

    return {
        "id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 1, "system_tokens": 2,
        "requests": [
            {"t": 0.0, "type": "n", "model": "m", "in": 200, "out": 9, "api_time": 2.0, "think_time": 0.0,
             **ids((1, 3))},
            {"t": 5.0, "type": "n", "model": "m", "in": 300, "out": 0, "api_time": 1.0, "think_time": 3.0,
             **ids((1, 2), (7, 2))},
            {"t": 6.5, "type": "subagent", "agent_id": "x", "requests": [
                {"t": 0.0, "type": "n", "model": "m", "in": 64, "out": 3, "api_time": 1.0, "think_time": 0.0,
                 **ids((20, 1))},
                {"t": 4.0, "type": "n", "model": "m", "in": 128, "out": 3, "api_time": 1.0, "think_time": 3.0,
                 **ids((20, 2))},
            ]},
            {"t": 10.0, "type": "n", "model": "m", "in": 260, "out": 4, "api_time": 1.0, "think_time": 4.0,
             **ids((1, 4))},
        ],
    }  # fmt: skip


WEKA = jsonl([_weka("one", "hash_runs"), _weka("two", "hash_ids"), _weka("three", "hash_runs")])
RAGPULSE = jsonl(
    [
        {"timestamp": "82", "input_length": 40, "output_length": 7, "session_id": "s", "hash_ids": {
            "sys_prompt": [8302], "passages_ids": [7, 8], "history": [], "web_search": [], "user_input": [90]}},
        {"timestamp": "50", "input_length": 30, "output_length": 7, "session_id": "s", "hash_ids": {
            "sys_prompt": [8302], "passages_ids": [8], "history": [50], "web_search": [], "user_input": [91]}},
        {"timestamp": "50", "input_length": 45, "output_length": 7, "session_id": "t", "hash_ids": {
            "sys_prompt": [8302], "passages_ids": [8, 7], "history": [], "web_search": [60], "user_input": [91]}},
    ]
)  # fmt: skip


def _ragpulse(lines: list[str]) -> dict[str, str]:
    parts = {
        "1_sys_prompt": ("sys_prompt_id", {8302: 10}),
        "2_passages": ("passage_id", {7: 12, 8: 7}),
        "3_history": ("history_id", {50: 4}),
        "4_user_input": ("user_input_id", {90: 3, 91: 2}),
        "5_web_search": ("web_search_id", {60: 5}),
    }
    files = {"data/0_trace.jsonl": "\n".join(lines) + "\n\n"}
    for name, (key, lengths) in parts.items():
        files[f"data/{name}.jsonl"] = "".join(
            json.dumps({key: number, "token_length": length}) + "\n" for number, length in lengths.items()
        )
    return files


AZURE = [
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 18:17:03.9799600,4808,10",
    "2023-11-16 18:17:04.0319600,3180,8",
    "2024-05-10 00:00:00.009930+00:00,110,27",
]
BURSTGPT = [
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    "5,ChatGPT,472,18,490,Conversation log",
    "45,ChatGPT,1087,12,1099,Conversation log",
    "118,GPT-4,417,276,693,API log",
]
SERVEGEN = ["0,0.05,1,Gamma,1.0,20", "600,0.1,0.5,Weibull,2.0,11", "1200,0,0,,0,0", "1800,0.02,1,,0,0"]
SERVEGEN_DATA = {
    "0": {"text_tokens": "{50: 0.5, 60: 0.5}", "image_tokens": "{100: 1.0}", "image_count": "{0: 0.5, 2: 0.5}",
          "output_tokens": "{7: 1.0}"}
}  # fmt: skip
TOKEN_IDS = jsonl(
    [
        {"prompt_token_ids": [1, 2, 3, 4], "timestamp": 0.0, "output_tokens": 5},
        {"prompt_token_ids": [1, 2, 9], "timestamp": 1.0, "output_tokens": 6, "session_id": "s"},
        {"input_tok_ids": [1, 2, 3], "timestamp": 1.5, "output_tok_ids": [4, 5], "session_id": "s"},
    ]
)
CHAT = jsonl(
    [
        {"prompt": "the cat sat", "timestamp": 0, "output_tokens": 3},
        {"messages": [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on the mat"}],
         "timestamp": 1},
        {"conversations": [{"from": "human", "value": "the cat"}, {"from": "gpt", "value": "sat"},
                           {"from": "human", "value": "on the mat"}, {"from": "gpt", "value": "the cat sat"}],
         "timestamp": 2},
    ]
)  # fmt: skip
NATIVE = [
    '{"kvsim_workload": 1}',
    *jsonl(
        [
            {"id": "a", "arrival_s": 0.5, "prompt": [["system", 0, 100], {"ids": [5, 6, 7]}], "output_tokens": 9,
             "session": "s"},
            {"id": "b", "after": "a", "delay_s": 2.5, "session": "s", "turn": 1, "output_tokens": 4, "category": "chat",
             "prompt": [["system", 0, 100], {"ids": [5, 6, 7]}, {"answer_of": "a", "length": 9},
                        {"stream": 77, "length": 40}],
             "images": [{"id": "cat", "offset": 112, "length": 20}], "lora": {"name": "l", "id": 1, "path": "p"},
             "cache_salt": "t", "priority": -1, "max_tokens": 50, "abort_after_s": 30.0},
            {"id": "c", "arrival_s": 1.0, "prompt": [["system", 0, 50]], "output_tokens": 1},
        ]
    ),
]  # fmt: skip


def _json_faults(line: str, length: str, time: str, ids: str | None = "hash_ids", **more: str) -> dict[str, str]:
    out = {
        "no JSON": line[: len(line) // 2],
        "no object": "[1, 2]",
        "a number": "17",
        "negative": changed(line, **{length: -4}),
        "NaN": line.replace(f'"{length}": ', f'"{length}": NaN, "was": '),
        "infinite": line.replace(f'"{length}": ', f'"{length}": 1e400, "was": '),
        "absurd": changed(line, **{length: 10**30}),
        "half a token": changed(line, **{length: 0.5}),
        "truth": changed(line, **{length: True}),
        "text": changed(line, **{length: "many"}),
        "null": changed(line, **{length: None}),
        "missing": changed(line, **{length: ...}),
        "negative time": changed(line, **{time: -1}),
        "NaN time": line.replace(f'"{time}": ', f'"{time}": NaN, "was": '),
        "absurd time": changed(line, **{time: 10**400}),
        "no time": changed(line, **{time: "soon"}),
        **more,
    }
    if ids is not None:
        out |= {
            "text for ids": changed(line, **{ids: ["a", "b"]}),
            "text for a list": changed(line, **{ids: "0 1"}),
            "negative id": changed(line, **{ids: [0, -1]}),
            "ids missing": changed(line, **{ids: ...}),
        }
    return out


def _csv_faults(line: str, at: int) -> dict[str, str]:
    cells = line.split(",")

    def with_cell(text: str, place: int = at) -> str:
        return ",".join([*cells[:place], text, *cells[place + 1 :]])

    return {
        "negative": with_cell("-4"),
        "NaN": with_cell("nan"),
        "infinite": with_cell("inf"),
        "absurd": with_cell("1e30"),
        "text": with_cell("many"),
        "empty": with_cell(""),
        "half a token": with_cell("0.5"),
        "too few cells": ",".join(cells[:-1]),
        "too many cells": line + ",1",
        "no time": with_cell("soon", 0),
    }


def _weka_faults(line: str) -> dict[str, str]:
    def with_request(**values: Any) -> str:
        row = json.loads(line)
        row["requests"][1].update(values)
        return json.dumps(row)

    return {
        "no JSON": line[: len(line) // 2],
        "negative": with_request(**{"in": -1}),
        "absurd": with_request(out=10**30),
        "text": with_request(t="soon"),
        "count": with_request(**{"in": 9999}),
        "text for ids": with_request(hash_ids=["a"]),
        "no block size": changed(line, block_size=...),
        "block size 0": changed(line, block_size=0),
        "no requests": changed(line, requests=7),
        "a list for a request": changed(line, requests=[[1]]),
        "repeated id": changed(line, id="one"),
        "scope": changed(line, hash_id_scope="everywhere"),
    }


def _rag_faults(line: str) -> dict[str, str]:
    row = json.loads(line)
    faults = _json_faults(line, "input_length", "timestamp", None)
    del faults["no time"]
    return faults | {
        "text for a time": changed(line, timestamp="soon"),
        "unknown segment": changed(line, hash_ids={**row["hash_ids"], "passages_ids": [999]}),
        "unknown part": changed(line, hash_ids={**row["hash_ids"], "tools": [1]}),
        "text for ids": changed(line, hash_ids={**row["hash_ids"], "passages_ids": ["a"]}),
        "a list for parts": changed(line, hash_ids=[1]),
        "too short": changed(line, input_length=3),
    }


TOKENIZER = "tokenizer"  # replaced by the path of a tokenizer file

SAMPLES: dict[str, Sample] = {
    "mooncake": Sample(
        MOONCAKE,
        1,
        4,
        _json_faults(MOONCAKE[1], "input_length", "timestamp", count=changed(MOONCAKE[1], input_length=5000)),
        wrong_column=("input_length", "prompt_length"),
    ),
    "bailian": Sample(
        BAILIAN,
        2,
        3,
        _json_faults(
            BAILIAN[2],
            "input_length",
            "timestamp",
            repeated=changed(BAILIAN[2], chat_id=1),
            count=changed(BAILIAN[2], input_length=50),
        ),
        wrong_column=("output_length", "answer"),
    ),
    "lmcache": Sample(
        LMCACHE, 1, 3, _json_faults(LMCACHE[1], "input_length", "timestamp"), wrong_column=("output_length", "answer")
    ),
    "weka": Sample(WEKA, 1, 15, _weka_faults(WEKA[1]), wrong_column=('"in"', '"input"')),
    "ragpulse": Sample(
        RAGPULSE, 1, 3, _rag_faults(RAGPULSE[1]), archive=_ragpulse, wrong_column=("output_length", "answer")
    ),
    "azure": Sample(AZURE, 2, 3, _csv_faults(AZURE[2], 1), suffix=".csv", wrong_column=("ContextTokens", "Tokens")),
    "burstgpt": Sample(
        BURSTGPT, 2, 3, _csv_faults(BURSTGPT[2], 2), suffix=".csv", wrong_column=("Response tokens", "Answer tokens")
    ),
    "servegen": Sample(
        SERVEGEN,
        1,
        -1,
        {
            "negative": "600,-1,1,Gamma,1.0,20",
            "NaN": "600,nan,1,Gamma,1.0,20",
            "absurd": "600,1e30,1,Gamma,1,1",
            "text": "soon,1,1,Gamma,1.0,20",
            "distribution": "600,1,1,Pareto,1.0,20",
            "shape": "600,1,1,Gamma,0,20",
            "order": "0,1,1,Gamma,1.0,20",
            "cells": "600,1,1",
        },
        archive=lambda lines: {
            "data/mm/chunk-0-trace.csv": "\n".join(lines) + "\n",
            "data/mm/chunk-0-dataset.json": json.dumps(SERVEGEN_DATA),
        },
    ),
    "token_ids": Sample(
        TOKEN_IDS,
        1,
        3,
        {
            key: line
            for key, line in _json_faults(TOKEN_IDS[1], "output_tokens", "timestamp", "prompt_token_ids").items()
            if key not in ("missing", "null")
        }
        | {"absurd id": changed(TOKEN_IDS[1], prompt_token_ids=[2**40])},
        wrong_column=("prompt_token_ids", "tokens"),
    ),
    "chat_text": Sample(
        CHAT,
        0,
        4,
        {
            "no JSON": CHAT[0][:20],
            "no text": changed(CHAT[0], prompt=...),
            "number": changed(CHAT[0], prompt=7),
            "messages": changed(CHAT[0], prompt=..., messages="hello"),
            "no messages": changed(CHAT[0], prompt=..., messages=[]),
            "content": changed(CHAT[0], prompt=..., messages=[{"role": "user", "content": 7}]),
            "negative": changed(CHAT[0], output_tokens=-1),
            "no time": changed(CHAT[0], timestamp="soon"),
        },
        options={TOKENIZER: TOKENIZER},
        wrong_column=('"prompt"', '"promt"'),
    ),
    "native": Sample(
        NATIVE,
        3,
        3,
        {
            key: line
            for key, line in _json_faults(NATIVE[3], "output_tokens", "arrival_s", None).items()
            if key != "missing time"
        }
        | {
            "repeated id": changed(NATIVE[3], id="a"),
            "unknown key": changed(NATIVE[3], think_time=3),
            "after nothing": changed(NATIVE[3], after="z"),
            "prompt": changed(NATIVE[3], prompt="text"),
            "piece": changed(NATIVE[3], prompt=[["system", 0]]),
            "piece length": changed(NATIVE[3], prompt=[["system", 0, -5]]),
            "piece start": changed(NATIVE[3], prompt=[["system", -1, 5]]),
            "text for ids": changed(NATIVE[3], prompt=[{"ids": ["a"]}]),
            "answer of nothing": changed(NATIVE[3], prompt=[{"answer_of": "z", "length": 3}]),
            "image outside": changed(NATIVE[3], images=[{"id": "i", "offset": 40, "length": 20}]),
            "image": changed(NATIVE[3], images=[{"id": "i"}]),
            "lora": changed(NATIVE[3], lora={"name": "x", "id": 0}),
            "priority": changed(NATIVE[3], priority="high"),
            "stream": changed(NATIVE[3], prompt=[[-3, 0, 5]]),
        },
        wrong_column=('"prompt"', '"promt"'),
    ),
}
