"""What each figure of `summary.json` means and its unit: one table for the summary, the reports and the docs."""

from __future__ import annotations

from sim.recording.latency import METRICS

_ADMISSION = "over the first admission of each request"

FIGURES: dict[str, tuple[str, str]] = {
    "requests.total": ("requests", "all requests of the workload; each ended in exactly one of the ways below"),
    "requests.finished": ("requests", "answered to the end"),
    "requests.aborted": ("requests", "given up by their client before the end"),
    "requests.rejected": ("requests", "refused on arrival, because they could never be served"),
    "requests.cancelled": ("requests", "never sent, because the request that they follow did not finish"),
    "simulated_s": ("s", "from the first arrival to the last end of a request"),
    "steps": ("steps", "steps that the engine took"),
    "busy_share": ("share", "time in steps / simulated_s"),
    "tokens.prompt": ("tokens", "prompt tokens of the requests that were admitted"),
    "tokens.output": ("tokens", "tokens answered, those of aborted requests included"),
    "tokens.computed_prefill": ("tokens", "tokens computed in prefill chunks, recomputation included"),
    "tokens.recomputed": ("tokens", "tokens computed a second time, because a preemption had lost them"),
    "tokens.encoder": ("tokens", "embeddings that the multimodal encoder made"),
    "hit_rate.tokens": (
        "share",
        f"prefix cache hits / prompt tokens, {_ADMISSION}; vLLM's prefix_cache_hits / prefix_cache_queries",
    ),
    "hit_rate.full_blocks": ("share", f"hit blocks / full prompt blocks, {_ADMISSION}; a partial last block can't hit"),
    "hit_rate.blocks": ("share", f"hit blocks / all prompt blocks, the partial last one included, {_ADMISSION}"),
    "hit_rate.tokens_with_recomputation": (
        "share",
        "hits / tokens looked up, over all admissions: coming back from a preemption, a request often hits what it "
        "computed itself, which no other cache policy could earn",
    ),
    "hit_rate.full_blocks_with_recomputation": (
        "share",
        "hit blocks / full blocks looked up over all admissions; a re-admission looks up its tokens / block_size",
    ),
    "hit_rate.tokens_after_warmup": ("share", "as hit_rate.tokens, without the requests that count as warm-up"),
    "hit_rate.full_blocks_after_warmup": (
        "share",
        "as hit_rate.full_blocks, without the requests that count as warm-up",
    ),
    "hit_rate.tokens_with_recomputation_after_warmup": (
        "share",
        "as hit_rate.tokens_with_recomputation, over steps that begin when the first request after warm-up arrives "
        "or later",
    ),
    "hit_rate.last_1000_requests": (
        "share",
        "hits / prompt tokens over about the 1,000 requests admitted last, as vLLM logs it: whole steps, "
        "first admissions",
    ),
    "warmup_requests": ("requests", "requests that count as warm-up, by the configuration's `warmup`"),
    "evictions": ("blocks", "cached blocks that lost their content to make room"),
    "evictions_per_1000_prompt_tokens": ("blocks", "evictions / thousand prompt tokens admitted"),
    "preemptions": ("", "times that a running request lost its blocks and had to start over"),
    "preempted_requests": ("requests", "requests that were preempted at least once"),
    "phantom_hit_tokens": (
        "tokens",
        "hits on blocks whose content was never computed (the reference counts them as hits; see docs/fidelity.md)",
    ),
    "kv_usage.mean": ("share", "usable blocks held by requests, mean over the time in steps"),
    "kv_usage.max": ("share", "the same, at its highest"),
    "running_requests.mean": ("requests", "requests running, mean over the time in steps"),
    "running_requests.max": ("requests", "most requests running at once"),
    "waiting_requests.mean": ("requests", "requests waiting, mean over the time in steps"),
    "waiting_requests.max": ("requests", "most requests waiting at once"),
    "goodput.good_requests": ("requests", "finished requests that meet every service level of `slo`"),
    "goodput.requests_per_s": ("1/s", "good requests / simulated_s"),
    "goodput.share": ("share", "good requests / all requests of the workload"),
}

_LATENCIES = {
    "ttft": "arrival to the end of the step that sampled the first token, of finished requests",
    "tpot": "(last token - first token) / (output tokens - 1), of finished requests with two output tokens or more",
    "itl": "time between a token and the one before it, of all tokens after a request's first",
    "e2e": "arrival to the end, of finished requests",
    "queue": "arrival to the start of the first step that computed a token of it, of finished requests",
    "prefill": "first scheduled to first token, of finished requests (waiting after a preemption included)",
    "decode": "first token to the end, of finished requests",
    "inference": "first scheduled to the end, of finished requests",
}

_BENCHMARK = {
    "duration": ("s", "simulated_s"),
    "completed": ("requests", "requests.finished"),
    "failed": ("requests", "requests that did not finish"),
    "total_input_tokens": ("tokens", "prompt tokens of finished requests"),
    "total_output_tokens": ("tokens", "output tokens of finished requests"),
    "request_throughput": ("1/s", "completed / duration"),
    "request_goodput": ("1/s", "finished requests that meet every service level of `slo` / duration"),
    "output_throughput": ("tokens/s", "total_output_tokens / duration"),
    "total_token_throughput": ("tokens/s", "(total_input_tokens + total_output_tokens) / duration"),
}


def definitions() -> dict[str, str]:
    """Dotted name of a figure (or of a group of them) to its definition, with the unit in front."""
    found = {name: _with_unit(unit, text) for name, (unit, text) in FIGURES.items()}
    for name, text in _LATENCIES.items():
        found[f"latency.{METRICS[name]}"] = _with_unit("s", text)
        short = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}.get(name)
        for figure in ("mean", "median", "std", "p90", "p99") if short else ():
            found[f"benchmark.{figure}_{short}_ms"] = _with_unit("ms", f"{figure} of: {text}")
    for name, (unit, text) in _BENCHMARK.items():
        found[f"benchmark.{name}"] = _with_unit(unit, text)
    return found


def _with_unit(unit: str, text: str) -> str:
    return f"[{unit}] {text}" if unit else text
