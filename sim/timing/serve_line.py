"""Read the command line that people already have: ``vllm serve MODEL --block-size 32 …``.

Flags that decide what this simulator simulates become settings; flags that don't (ports, names,
logging, tokenizers …) are listed as ignored; anything else is an error with the nearest name.
Names and defaults are vLLM's.
"""

from __future__ import annotations

import difflib
import functools
import json
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from sim.errors import KvsimError
from sim.timing.catalog import DATA
from sim.timing.memory import parse_size


class ServeLineError(KvsimError):
    """A `vllm serve` line that can't be read; the message names the flag and what would be right."""


class ServeLine(NamedTuple):
    """What the line says: the model, `engine:` and `memory:` settings, and the flags ignored with their values."""

    model: str
    engine: dict[str, Any]
    memory: dict[str, Any]
    ignored: tuple[tuple[str, str | None], ...]

    def notes(self) -> list[str]:
        """One line per thing that the line says and the simulator does not follow."""
        names = [flag if value is None else f"{flag} {value}" for flag, value in self.ignored]
        return [f"ignored, without effect on the KV cache: {', '.join(names)}"] if names else []


def _whole(text: str) -> int:
    """An integer as vLLM reads it: 1k = 1000, 1K = 1024, 2.5k = 2500."""
    units = {"k": 1000, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    if text and text[-1] in units:
        return int(float(text[:-1]) * units[text[-1]])
    return int(text)


def _bytes(text: str) -> int:
    return _whole(text) if text[-1:] in "kmgKMG" and text[-1:] else parse_size(int(text) if text.isdigit() else text)


def _name(text: str) -> str:
    return text


# flag → (block, key, how to read its value); boolean flags have None and come with --no-…
_FLAGS: dict[str, tuple[str, str, Callable[[str], Any] | None]] = {
    "--block-size": ("engine", "block_size", _whole),
    "--max-num-seqs": ("engine", "max_num_seqs", _whole),
    "--max-num-batched-tokens": ("engine", "max_num_batched_tokens", _whole),
    "--max-model-len": ("engine", "max_model_len", _whole),
    "--enable-prefix-caching": ("engine", "enable_prefix_caching", None),
    "--prefix-caching-hash-algo": ("engine", "prefix_caching_hash_algo", _name),
    "--num-gpu-blocks-override": ("engine", "num_gpu_blocks_override", _whole),
    "--scheduling-policy": ("engine", "scheduling_policy", _name),
    "--enable-chunked-prefill": ("engine", "enable_chunked_prefill", None),
    "--long-prefill-token-threshold": ("engine", "long_prefill_token_threshold", _whole),
    "--max-loras": ("engine", "max_loras", _whole),
    "--disable-chunked-mm-input": ("engine", "disable_chunked_mm_input", None),
    "--disable-hybrid-kv-cache-manager": ("engine", "disable_hybrid_kv_cache_manager", None),
    "--async-scheduling": ("engine", "async_scheduling", None),
    "--watermark": ("engine", "watermark", float),
    "--scheduler-reserve-full-isl": ("engine", "scheduler_reserve_full_isl", None),
    "--prefix-cache-retention-interval": ("engine", "prefix_cache_retention_interval", _whole),
    "--tensor-parallel-size": ("memory", "tensor_parallel_size", _whole),
    "--gpu-memory-utilization": ("memory", "gpu_memory_utilization", float),
    "--kv-cache-dtype": ("memory", "kv_cache_dtype", _name),
    "--kv-cache-memory-bytes": ("memory", "kv_cache_memory", _bytes),
    "--dtype": ("memory", "dtype", _name),
    "--quantization": ("memory", "dtype", _name),
}
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "-O": "--compilation-config",
    "--kv-cache-memory": "--kv-cache-memory-bytes",
}

# flags that would change decisions in ways that are not simulated: better stopped than silently left out
_NOT_SIMULATED = {
    "--speculative-config": "speculative decoding",
    "--speculative-model": "speculative decoding",
    "--kv-transfer-config": "KV connectors",
    "--kv-offloading-size": "KV offloading",
    "--prefill-schedule-interval": "a pause between prefills",
    "--max-num-active-seqs": "a limit on active requests",
    "--max-num-scheduled-tokens": "a limit on scheduled tokens apart from batched ones",
    "--max-num-queued-reqs": "a limited waiting queue",
    "--max-num-queued-tokens": "a limited waiting queue",
    "--kv-cache-dtype-skip-layers": "a KV cache of several dtypes",
    "--spec-method": "speculative decoding",
    "--spec-model": "speculative decoding",
    "--spec-tokens": "speculative decoding",
    "--ec-transfer-config": "an encoder-cache connector",
    "--kv-offloading-backend": "KV offloading",
    "--prefix-match-unit": "another unit of prefix matching",
    "--diffusion-config": "diffusion decoding",
    "--scheduler-cls": "another scheduler",
    "--pipeline-parallel-size": "pipeline parallelism (but 1)",
    "--data-parallel-size": "several engines behind one address (but 1)",
    "--decode-context-parallel-size": "context parallelism (but 1)",
    "--prefill-context-parallel-size": "context parallelism (but 1)",
}
# the same, as switches
_NOT_SIMULATED_SWITCHES = {
    "--long-prefill-token-threshold-adaptive": "an adaptive prefill threshold",
    "--disable-sliding-window": "a model without its sliding windows",
    "--kv-sharing-fast-prefill": "KV sharing between layers",
    "--swa-bounded-replay": "bounded replay of windows",
}
# values that leave the model's own; a dtype of two bytes only says how the engine computes
_AUTOMATIC = {
    "--dtype": ("auto", "bfloat16", "float16", "half"),
    "--quantization": ("None", "none", "null"),
    "--max-model-len": ("auto", "-1"),
}


@functools.cache
def _ignored_flags() -> tuple[frozenset[str], frozenset[str]]:
    """Flags without effect: those with a value, and switches."""
    data = yaml.safe_load((DATA / "serve_flags.yaml").read_text(encoding="utf-8"))
    return frozenset(data["with_value"]), frozenset(data["switches"])


def parse_serve_line(line: str) -> ServeLine:
    """Read the line (with or without the leading ``vllm serve``; environment variables before it are skipped).

    Raises `ServeLineError`, one line per fault, for flags that are unknown (with the nearest name),
    lack a value, have a bad one, or ask for what is not simulated.
    """
    try:
        words = shlex.split(line.replace("\\\n", " "))
    except ValueError as error:
        raise ServeLineError(f"--serve: {error}") from None
    while words and "=" in words[0] and not words[0].startswith("-"):
        words.pop(0)
    if words[:2] == ["vllm", "serve"]:
        words = words[2:]
    elif words[:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]:
        words = words[3:]
    elif words[:1] == ["vllm"]:
        raise ServeLineError(f"--serve: expected `vllm serve MODEL …`, found `{' '.join(words[:2])}`")
    return _Reader(words).read()


class _Reader:
    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._faults: list[str] = []
        self._model: str | None = None
        self._settings: dict[str, dict[str, Any]] = {"engine": {}, "memory": {}}
        self._set_by: dict[tuple[str, str], str] = {}
        self._ignored: list[tuple[str, str | None]] = []
        self._with_value, self._switches = _ignored_flags()
        self._lora = False

    def read(self) -> ServeLine:
        place = 0
        while place < len(self._words):
            word = self._words[place]
            if not word.startswith("-") or word == "-":
                if self._model is not None:
                    self._faults.append(f"{word!r} follows no flag, and the model is {self._model!r} already")
                self._model = self._model or word
                place += 1
                continue
            place += self._flag(word, self._words[place + 1] if place + 1 < len(self._words) else None)
        if self._model is None:
            self._faults.insert(0, "no model: expected `vllm serve MODEL …`")
        if self._faults or self._model is None:
            raise ServeLineError("\n".join(f"--serve: {fault}" for fault in self._faults))
        self._settle()
        return ServeLine(self._model, self._settings["engine"], self._settings["memory"], tuple(self._ignored))

    def _flag(self, word: str, following: str | None) -> int:
        """Take one flag; how many words it used."""
        flag, equals, inline = word.partition("=")
        flag = _SHORT.get(flag, flag.replace("_", "-") if flag.startswith("--") else flag)
        if not equals and flag.startswith("-O") and not flag.startswith("--"):
            self._ignored.append((flag, None))
            return 1
        base = "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else flag
        if (flag in _FLAGS and _FLAGS[flag][2] is None) or (base != flag and base in _FLAGS):
            self._switch(base, flag, inline if equals else None)
            return 1
        if flag == "--enable-lora":
            self._lora = True
            return 1
        if base in _NOT_SIMULATED_SWITCHES:
            if flag == base:
                self._faults.append(f"{flag}: {_NOT_SIMULATED_SWITCHES[base]} is not simulated")
            return 1
        if base in self._switches:
            self._ignored.append((flag, inline if equals else None))
            return 1
        takes = flag == "--model" or flag in _FLAGS or flag in self._with_value or flag in _NOT_SIMULATED
        if not takes and flag.split(".")[0] in (*self._with_value, *_NOT_SIMULATED):
            flag, takes = flag.split(".")[0], True  # a field of a JSON setting: --compilation-config.mode 3
        if not takes:
            self._faults.append(self._unknown(flag))
            return 1 if equals or following is None or following.startswith("-") else 2
        if not equals and (following is None or (following.startswith("-") and not _is_number(following))):
            self._faults.append(f"{flag} needs a value")
            return 1
        self._value(flag, inline if equals else str(following))
        return 1 if equals else 2

    def _switch(self, base: str, flag: str, inline: str | None) -> None:
        block, key, convert = _FLAGS[base]
        if convert is not None:
            self._faults.append(f"{flag} is unknown: {base} takes a value")
        elif inline is not None and inline.lower() not in ("true", "false"):
            self._faults.append(f"{flag}={inline}: expected true, false or no value")
        else:
            self._set(block, key, (flag == base) == ((inline or "true").lower() == "true"), flag)

    def _value(self, flag: str, text: str) -> None:
        if flag == "--model":
            self._model = self._model or text
        elif flag in _NOT_SIMULATED:
            if not (_NOT_SIMULATED[flag].endswith("(but 1)") and text == "1"):
                self._faults.append(f"{flag} {text}: {_NOT_SIMULATED[flag]} is not simulated".replace(" (but 1)", ""))
            else:
                self._ignored.append((flag, text))
        elif flag in self._with_value or text in _AUTOMATIC.get(flag, ()):
            self._ignored.append((flag, text))
        else:
            block, key, convert = _FLAGS[flag]
            try:
                assert convert is not None  # switches were taken before
                self._set(block, key, convert(text), flag)
            except ValueError:
                self._faults.append(f"{flag} {text}: not a number that can be read")

    def _set(self, block: str, key: str, value: Any, flag: str) -> None:
        before = self._settings[block].get(key)
        if before is not None and key == "dtype":
            if flag == "--dtype":  # the quantization says how weights are stored, the dtype only how it computes
                self._ignored.append((flag, str(value)))
                return
            self._ignored.append(("--dtype", str(before)))
        elif before is not None and before != value:
            self._faults.append(f"{flag} {value} contradicts the {self._set_by[block, key]} {before} before it")
        self._settings[block][key] = value
        self._set_by[block, key] = flag

    def _settle(self) -> None:
        """What flags mean together."""
        engine, memory = self._settings["engine"], self._settings["memory"]
        if self._lora:
            engine.setdefault("max_loras", 1)
        elif "max_loras" in engine:
            self._ignored.append(("--max-loras", str(engine.pop("max_loras"))))
        if "kv_cache_memory" in memory and "gpu_memory_utilization" in memory:
            self._ignored.append(("--gpu-memory-utilization", str(memory.pop("gpu_memory_utilization"))))

    def _unknown(self, flag: str) -> str:
        known = [*_FLAGS, *_SHORT, *self._with_value, *self._switches, *_NOT_SIMULATED, *_NOT_SIMULATED_SWITCHES]
        known += ["--model", "--enable-lora"]
        known += [f"--no-{name[2:]}" for name, (_, _, convert) in _FLAGS.items() if convert is None]
        likely = difflib.get_close_matches(flag, known, n=2, cutoff=0.6)
        return f"unknown flag {flag}" + (f": did you mean {' or '.join(likely)}?" if likely else "")


def _is_number(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
