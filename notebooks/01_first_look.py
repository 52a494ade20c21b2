# %% [markdown]
# # A first look
#
# A service answers requests that begin with one of forty system prompts. How much of the prompts does the
# prefix cache serve, and what does a cache that is a little too small cost? This notebook runs
# `configs/quickstart.yaml` and looks at what came out.

# %%
import matplotlib.pyplot as plt

import sim

OUT = "../results"
results = sim.run("../configs/quickstart.yaml", changes={"workload.requests": 1000}, out=OUT)
results

# %% [markdown]
# Everything above is a figure of `results.summary`; `results.figures` has all of them, each with its
# definition. Hit rates are easily confused, so look at what is divided by what:

# %%
figures = results.figures
figures[figures.index.str.startswith("hit_rate")].style.format({"value": "{:.3f}"})

# %% [markdown]
# ## Over time
#
# The cache starts empty. The hit rate climbs while popular prompts come in for the first time, and then
# stays where evictions hold it down.

# %%
fig, axes = plt.subplots(3, 1, figsize=(9, 9), sharex=True, layout="constrained")
results.plot.hit_rate_over_time(ax=axes[0])
results.plot.kv_usage_over_time(ax=axes[1])
results.plot.evictions_over_time(ax=axes[2])
plt.show()

# %% [markdown]
# ## One row per request
#
# Tables are pandas data frames. A hit saves the time to compute the prefix: the median prefill tells whether
# a request's system prompt was there. What a request waits for, though, is the others: time that hits save is
# shared by all that stand in the queue.

# %%
requests = results.requests.assign(
    waiting_ms=lambda t: 1000 * (t["first_scheduled_s"] - t["arrival_s"]),
    prefill_ms=lambda t: 1000 * (t["first_token_s"] - t["first_scheduled_s"]),
    found=lambda t: t["cached_tokens"].gt(0).map({True: "prompt found", False: "prompt not found"}),
)
requests.groupby("found")[["waiting_ms", "prefill_ms"]].agg(["median", "mean", "max"]).round(1)

# %%
results.plot.ttft()

# %% [markdown]
# ## What was evicted
#
# Each evicted block knows how long it had lain idle, and how often it had been hit. A block that lay idle
# only briefly before it was evicted is a sign that the cache is too small.

# %%
evictions = results.evictions
print(f"{len(evictions):,} blocks evicted, {(evictions['hits'] > 0).mean():.0%} of which had served a hit")
results.plot.idle_before_eviction()

# %% [markdown]
# ## Twice the memory
#
# `changes` takes any path of the configuration, as `--set` does on the command line. `sim.compare` shows
# what it did.

# %%
larger = sim.run(
    "../configs/quickstart.yaml",
    changes={"workload.requests": 1000, "memory.num_gpu_blocks": 12000},
    out=OUT,
)
comparison = sim.compare([results, larger])
wanted = ["hit_rate.tokens", "evictions", "latency.vllm:time_to_first_token_seconds.p99"]
comparison.figures.loc[wanted]

# %% [markdown]
# The same page that `kvsim report` writes, with all figures and how the run was made, is one call away:

# %%
results.report()
