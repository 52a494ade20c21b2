# %% [markdown]
# # Your own trace
#
# What would a cache do for *your* traffic? All it takes is a log with the time, the lengths and, for each
# request, which blocks of its prompt are which. This notebook makes such a log (replace the first cells by
# yours), looks into it, and runs it.

# %%
import hashlib
import json
import random
from pathlib import Path

import matplotlib.pyplot as plt

import sim

OUT = Path("../results")
OUT.mkdir(exist_ok=True)
TRACE = OUT / "my_trace.jsonl"

# %% [markdown]
# ## From a log to a trace
#
# The simplest form is a line a request, with the hashes of the prompt's blocks of a fixed number of tokens,
# each over all that stands before it. (That is how the Mooncake traces are published. `sim.workloads()`
# lists a dozen other formats: token ids, text with a tokenizer, Azure, BurstGPT, and so on.)
#
# Here, a support desk: an instruction, one of thirty manuals, and the conversation so far.

# %%
BLOCK_TOKENS = 64
draw = random.Random(7)
ids: dict[bytes, int] = {}


def chained_ids(blocks: list[str]) -> list[int]:
    """Number each prefix: equal beginnings have equal numbers."""
    digest, out = b"", []
    for text in blocks:
        digest = hashlib.sha256(digest + text.encode()).digest()
        out.append(ids.setdefault(digest, len(ids)))
    return out


rows, now = [], 0.0
for session in range(150):
    now += draw.expovariate(1.0)
    manual = min(int(draw.paretovariate(0.8)), 30)
    prompt = [f"instruction {i}" for i in range(6)] + [f"manual {manual}, {i}" for i in range(20)]
    at = now
    for turn in range(draw.randint(1, 5)):
        prompt = prompt + [f"session {session}, turn {turn}, {i}" for i in range(draw.randint(1, 6))]
        answer = draw.randint(40, 400)
        rows.append(
            {
                "timestamp": int(1000 * at),
                "input_length": BLOCK_TOKENS * len(prompt) - draw.randint(0, BLOCK_TOKENS - 1),
                "output_length": answer,
                "hash_ids": chained_ids(prompt),
            }
        )
        at += 5 + answer * 0.03 + draw.expovariate(1 / 15)
rows.sort(key=lambda row: row["timestamp"])
TRACE.write_text("".join(json.dumps(row) + "\n" for row in rows))
print(f"{len(rows)} requests; the first one:", json.dumps(rows[0])[:100], "…")

# %% [markdown]
# ## What is in it?
#
# Look before you run. An inspection says how the lengths are spread, which prefixes are shared, and what
# odd lines there are.

# %%
looked = sim.inspect(TRACE, format="mooncake", options={"hash_block_size": BLOCK_TOKENS})
looked

# %%
print(looked.why)

# %%
looked.largest_prefixes[["saved_tokens", "from_token", "to_token", "prompts"]].head()

# %% [markdown]
# ## How large a cache does it need?

# %%
curves = sim.curve(TRACE, format="mooncake", options={"hash_block_size": BLOCK_TOKENS})
curves.plot()

# %% [markdown]
# ## Run it
#
# A configuration can be built in Python. `sim.settings("engine")` lists what a section can say; mappings do
# as well as the models.

# %%
config = sim.ExperimentConfig(
    name="my_trace",
    engine=sim.EngineConfig(block_size=16, max_num_seqs=32, max_model_len=16384),
    memory={"num_gpu_blocks": 4000},
    timing=sim.LinearTiming(step_s=0.01, prefill_token_s=4e-5, decode_request_s=6e-5),
    workload={
        "kind": "trace",
        "path": str(TRACE),
        "format": "mooncake",
        "options": {"hash_block_size": BLOCK_TOKENS},
    },
)
results = sim.run(config, out=OUT)
results

# %%
fig, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
results.plot.hit_rate_over_time(ax=axes[0])
results.plot.requests_in_system(ax=axes[1])
plt.show()

# %% [markdown]
# ## What if there were more of it?
#
# `rate_scale` plays the same requests faster. Which gives in first: the cache, or the queue?

# %%
sweep = sim.sweep(config, {"workload.rate_scale": [0.5, 1, 2, 4]}, out=OUT, resume=True)
sweep.table("hit_rate.tokens", "preemptions", "latency.vllm:time_to_first_token_seconds.p99")
