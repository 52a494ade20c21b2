"""Record an installed vLLM's scheduler, so that `kvsim verify` can compare its decisions with kvsim's.

Needs vLLM in the same environment (its scheduler runs on the CPU, without a model); nothing else of
kvsim does.  Reads a scenario, which is a recording without ``steps`` (the format is in
docs/fidelity.md), and writes the recording:

    python tools/record_vllm.py scenario.json recording.json.gz

The synchronous scheduler is recorded, or with ``async_scheduling`` the asynchronous one.  Written for
vLLM 0.33; vLLM's internal interfaces move, so another version may need another import or argument
here, which then fails with vLLM's own message.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

STATISTICS = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")


def fail(message: str) -> None:
    """Print one line and exit with 2."""
    print(f"record_vllm: error: {message}", file=sys.stderr)
    sys.exit(2)


def prompt_tokens(parts: list[list[Any]]) -> list[int]:
    """The token ids that the recording format defines for a prompt."""
    tokens: list[int] = []
    for part in parts:
        if part[0] == "reply":
            _, index, start, count = part
            tokens += [answer_token(index, position) for position in range(start, start + count)]
        else:
            seed, count = part
            tokens += [(seed * 1000003 + j * 7919) % 50000 for j in range(count)]
    return tokens


def answer_token(index: int, position: int) -> int:
    """What request number `index` answers at an absolute position."""
    return (index * 104729 + position * 15485863) % 50000


def sha(ids: list[int]) -> str:
    """Digest of a free list."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


def event_hash(value: Any) -> str:
    """The low 64 bits of a block hash, in hex."""
    number = value if isinstance(value, int) else int.from_bytes(value[-8:], "big")
    return f"{number & (1 << 64) - 1:016x}"


def event_fields(event: Any) -> list[Any]:
    """A KV event as recordings write it."""
    group = getattr(event, "group_idx", None) or 0
    hashes = [event_hash(value) for value in getattr(event, "block_hashes", [])]
    if type(event).__name__ == "BlockStored":
        parent = event.parent_block_hash
        return ["stored", group, hashes, None if parent is None else event_hash(parent)]
    return ["removed", group, hashes] if type(event).__name__ == "BlockRemoved" else ["cleared"]


class Recorder:
    """Drives vLLM's scheduler through a scenario, step by step."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        try:
            import vllm
        except ImportError:
            fail("vLLM is not installed here: pip install vllm==0.33.0, in an environment of its own")
        self.version = vllm.__version__
        self.scenario = scenario
        self.engine = scenario["engine"]
        self.asynchronous = bool(self.engine.get("async_scheduling"))
        self.in_flight: deque[tuple[int, Any, list[str]]] = deque()
        os.environ.pop("PYTHONHASHSEED", None)
        self.scheduler = self._make_scheduler()
        self.hasher = self._make_hasher()
        # the end of a step publishes its events itself
        self.published: list[Any] = []
        self.scheduler.kv_event_publisher.publish = lambda batch: self.published.extend(batch.events)
        self.order = {entry["id"]: index for index, entry in enumerate(scenario["requests"])}

    def _make_scheduler(self) -> Any:
        from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
        from vllm.config.kv_events import KVEventsConfig
        from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.structured_output import StructuredOutputManager

        engine = self.engine
        optional = {
            "policy": "policy",
            "long_prefill_token_threshold": "long_prefill_token_threshold",
            "watermark": "watermark",
            "scheduler_reserve_full_isl": "scheduler_reserve_full_isl",
        }
        config = VllmConfig(
            scheduler_config=SchedulerConfig(
                max_num_seqs=engine["max_num_seqs"],
                max_num_batched_tokens=engine["max_num_batched_tokens"],
                max_model_len=engine["max_model_len"],
                enable_chunked_prefill=engine.get("enable_chunked_prefill", True),
                is_encoder_decoder=False,
                async_scheduling=self.asynchronous,
                **{ours: engine[name] for name, ours in optional.items() if name in engine},
            ),
            model_config=ModelConfig(
                model=self._model_folder(), skip_tokenizer_init=True, max_model_len=engine["max_model_len"]
            ),
            cache_config=CacheConfig(
                block_size=engine["block_size"],
                enable_prefix_caching=engine.get("enable_prefix_caching", True),
                prefix_caching_hash_algo=engine["hash_algo"],
                prefix_cache_retention_interval=engine.get("retention_interval"),
            ),
            device_config=DeviceConfig(device="cpu"),
            kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
            **self._lora_config(),
        )
        config.cache_config.num_gpu_blocks = engine["num_gpu_blocks"]
        groups = engine.get("groups") or [{"kind": "full", "block_size": engine["block_size"]}]
        sizes = [group["block_size"] for group in groups]
        scheduler = (AsyncScheduler if self.asynchronous else Scheduler)(
            vllm_config=config,
            kv_cache_config=self._groups(groups, engine["num_gpu_blocks"], engine.get("retention_interval")),
            structured_output_manager=StructuredOutputManager(config),
            block_size=math.lcm(*sizes),
            hash_block_size=math.gcd(*sizes),
            log_stats=True,
        )
        # the model has no encoder to derive these from
        budget = engine.get("encoder_compute_budget", engine["max_num_batched_tokens"])
        scheduler.max_num_encoder_input_tokens = budget
        scheduler.encoder_cache_manager = EncoderCacheManager(
            cache_size=engine.get("encoder_cache_size", engine["max_num_batched_tokens"])
        )
        scheduler.scheduler_config.disable_chunked_mm_input = engine.get("disable_chunked_mm_input", False)
        return scheduler

    def _model_folder(self) -> str:
        """A folder that says enough of a model for the scheduler; there are no weights."""
        folder = Path(tempfile.mkdtemp(prefix="kvsim-record-"))
        config = {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
            "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 50000,
            "max_position_embeddings": self.engine["max_model_len"], "torch_dtype": "float32",
        }  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    def _lora_config(self) -> dict[str, Any]:
        if self.engine.get("max_loras") is None:
            return {}
        from vllm.config import LoRAConfig

        return {"lora_config": LoRAConfig(max_loras=self.engine["max_loras"], max_lora_rank=8)}

    @staticmethod
    def _groups(groups: list[dict[str, Any]], num_blocks: int, retention_interval: int | None) -> Any:
        import torch
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

        specs = []
        for number, group in enumerate(groups):
            shape = {"block_size": group["block_size"], "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
            if group["kind"] == "full":
                spec = FullAttentionSpec(**shape)
            else:
                spec = SlidingWindowSpec(**shape, sliding_window=group["window"])
            specs.append(KVCacheGroupSpec([f"layer.{number}"], spec))
        return KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=specs,
            prefix_cache_retention_interval=retention_interval,
        )

    def _make_hasher(self) -> Any:
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        function = get_hash_fn_by_name(self.engine["hash_algo"])
        init_none_hash(function)
        sizes = [group["block_size"] for group in self.engine.get("groups") or [self.engine]]
        return get_request_block_hasher(math.gcd(*sizes), function)

    def _request(self, index: int) -> Any:
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        entry = self.scenario["requests"][index]
        lora = entry.get("lora")
        return Request(
            request_id=entry["id"],
            prompt_token_ids=prompt_tokens(entry["prompt"]),
            sampling_params=SamplingParams(ignore_eos=True, max_tokens=entry["output_tokens"]),
            pooling_params=None,
            arrival_time=float(entry["arrival_step"]),
            priority=entry.get("priority", 0),
            cache_salt=entry.get("cache_salt"),
            mm_features=[self._item(item) for item in entry.get("mm") or []],
            lora_request=LoRARequest(lora["name"], lora["id"], lora["path"]) if lora else None,
            block_hasher=self.hasher,
        )

    @staticmethod
    def _item(item: dict[str, Any]) -> Any:
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        return MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=item["hash"],
            mm_position=PlaceholderRange(offset=item["offset"], length=item["length"]),
        )

    def _free_ids(self) -> list[int]:
        queue = self.scheduler.kv_cache_manager.block_pool.free_block_queue
        return [block.block_id for block in queue.get_all_free_blocks()]

    def _arrive(self, number: int) -> None:
        """Arrivals and aborts of a step."""
        from vllm.v1.request import RequestStatus

        scheduler = self.scheduler
        for index, entry in enumerate(self.scenario["requests"]):
            if entry["arrival_step"] == number:
                scheduler.add_request(self._request(index))
        for abort in self.scenario.get("aborts", []):
            # one by one: vLLM ends several in no fixed order
            if abort["step"] == number and abort["id"] in scheduler.requests:
                scheduler.finish_requests([abort["id"]], RequestStatus.FINISHED_ABORTED)

    def _schedule(self, number: int) -> dict[str, Any]:
        """Put a batch in flight; tell what was decided."""
        scheduler = self.scheduler
        before = {name: request.num_preemptions for name, request in scheduler.requests.items()}
        output = scheduler.schedule()
        scheduled = dict(output.num_scheduled_tokens)
        cached = output.scheduled_cached_reqs
        blocks = {request.req_id: [list(ids) for ids in request.block_ids] for request in output.scheduled_new_reqs}
        blocks |= {
            name: [list(g) for g in ids] for name, ids in zip(cached.req_ids, cached.new_block_ids, strict=True) if ids
        }
        requests = scheduler.requests
        if self.asynchronous:
            samples = [name for name in scheduled if not requests[name].is_prefill_chunk]
        else:
            samples = [name for name in scheduled if requests[name].num_computed_tokens >= requests[name].num_tokens]
        self.in_flight.append((number, output, samples))
        free = self._free_ids()
        stats = scheduler.kv_cache_manager.make_prefix_cache_stats()
        return {
            "step": number,
            "scheduled": scheduled,
            "computed_before": {name: requests[name].num_computed_tokens - k for name, k in scheduled.items()},
            "block_ids": {name: ids for name, ids in blocks.items() if any(ids)},
            "preempted": sorted(
                name for name, request in requests.items() if request.num_preemptions > before.get(name, 0)
            ),
            "encoder_inputs": {name: list(ids) for name, ids in output.scheduled_encoder_inputs.items() if ids},
            "running": [request.request_id for request in scheduler.running],
            "waiting": len(scheduler.waiting) + len(getattr(scheduler, "skipped_waiting", ())),
            "num_free_blocks": len(free),
            "free_queue_sha": sha(free),
            "free_queue_head": free[:6],
            "events": self._events(),
            "prefix_cache": {name: getattr(stats, name, 0) for name in STATISTICS},
        } | ({"samples": sorted(samples)} if self.asynchronous else {})

    def _events(self) -> list[Any]:
        events = [*self.published, *self.scheduler.kv_cache_manager.take_events()]
        self.published.clear()
        return [event_fields(event) for event in events]

    def _apply(self) -> tuple[int, list[str]]:
        """The oldest batch has run: the step that scheduled it, and who ended."""
        from vllm.v1.outputs import ModelRunnerOutput

        number, output, samples = self.in_flight.popleft()
        scheduler = self.scheduler
        alive = set(scheduler.requests)
        ids = list(output.num_scheduled_tokens)
        tokens = []
        for name in ids:
            request = scheduler.requests.get(name)
            position = request.num_tokens if request is not None else 0
            tokens.append([answer_token(self.order[name], position)] if name in samples else [])
        scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={name: position for position, name in enumerate(ids)},
                sampled_token_ids=tokens,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        return number, sorted(alive - set(scheduler.requests), key=self.order.__getitem__)

    def step(self, number: int) -> dict[str, Any]:
        """One step of the synchronous loop."""
        self._arrive(number)
        fields = self._schedule(number)
        fields["finished"] = self._apply()[1]
        fields["free_queue_sha_after"] = sha(self._free_ids())
        self._events()  # a synchronous step has none at its end
        return fields

    def turn(self, number: int) -> dict[str, Any]:
        """One turn of the asynchronous loop: at most two batches are in flight."""
        self._arrive(number)
        fields: dict[str, Any] = {"step": number, "scheduled": None}
        if self.scheduler.has_requests():
            fields = self._schedule(number)
        fields |= {"applied": None, "finished": [], "events_after": []}
        goes_on = bool(fields["scheduled"]) or self.scheduler.has_requests()
        if self.in_flight and not (len(self.in_flight) < 2 and goes_on):
            fields["applied"], fields["finished"] = self._apply()
            fields["events_after"] = self._events()
        fields["free_queue_sha_after"] = sha(self._free_ids())
        return fields

    def record(self) -> dict[str, Any]:
        """The whole scenario."""
        arrivals = sorted(entry["arrival_step"] for entry in self.scenario["requests"])
        take = self.turn if self.asynchronous else self.step
        steps, number = [], 0
        while True:
            steps.append(take(number))
            if self.scheduler.requests or (self.asynchronous and (self.in_flight or self.scheduler.has_requests())):
                number += 1
                continue
            later = [step for step in arrivals if step > number]
            if not later:
                break
            number = later[0]
        recording = {key: value for key, value in self.scenario.items() if key != "steps"}
        return {"reference": f"vllm {self.version}"} | recording | {"steps": steps}


def main() -> None:
    """Read a scenario, write a recording."""
    parser = argparse.ArgumentParser(description="Record vLLM's scheduler for kvsim verify.")
    parser.add_argument("scenario", type=Path, help="a recording without steps (JSON, plain or gzip)")
    parser.add_argument("recording", type=Path, help="where to write (.json.gz)")
    arguments = parser.parse_args()
    try:
        data = arguments.scenario.read_bytes()
        scenario = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, ValueError) as error:
        fail(f"{arguments.scenario}: {error}")
    recording = Recorder(scenario).record()
    with gzip.open(arguments.recording, "wt") as file:
        json.dump(recording, file)
    print(f"{arguments.recording}: {len(recording['steps'])} steps of {recording['reference']}")


if __name__ == "__main__":
    main()
