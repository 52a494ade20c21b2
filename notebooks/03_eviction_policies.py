# %% [markdown]
# # Eviction policies
#
# When the cache is full, which block goes? The reference evicts the least recently used one, the ends of
# prompts before their beginnings. `configs/policy_shootout.yaml` puts a dozen policies before the same
# requests: popular system prompts, a tree of tools and users, and documents that pass through once and
# wash the rest away.

# %%
import matplotlib.pyplot as plt
import pandas as pd

import sim

OUT = "../results"
CONFIG = "../configs/policy_shootout.yaml"

# %% [markdown]
# ## The cache alone
#
# First without time: the hit rate of a cache of each size. The optimum knows the future, so the gap between
# it and a policy is all that a better policy could gain.

# %%
curves = sim.curve(CONFIG, ["lru", "lru_tail_first", "fifo"])
curves.plot()

# %% [markdown]
# ## The whole engine
#
# Now with batches, prefill in chunks and requests that hold blocks while they run. A third of the requests
# is enough to see who is ahead.

# %%
shorter = {"workloads.0.limit": 120, "workloads.1.limit": 80, "workloads.2.limit": 40}
sweep = sim.sweep(CONFIG, changes=shorter, out=OUT, resume=True, continue_on_error=True)
points = sweep.points.set_index("variant")
table = points[["hit_rate.tokens", "evictions", "latency.vllm:time_to_first_token_seconds.p99"]]
table = table.sort_values("hit_rate.tokens", ascending=False)
table

# %%
best = table.loc["belady", "hit_rate.tokens"]
fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
shares = (table["hit_rate.tokens"] / best).iloc[::-1]
ax.barh(shares.index, 100 * shares)
ax.set_xlabel("% of what the policy that knows the future hits")
plt.show()

# %% [markdown]
# ## Who is served?
#
# A policy that is better on average may be so at the expense of one kind of request. The table of requests
# has their category:

# %%
served = {}
for name in ("lru", "lfu", "belady"):
    requests = sweep.run(int(points.loc[name, "point"])).requests
    grouped = requests.groupby("category")[["cached_tokens", "prompt_tokens"]].sum()
    served[name] = grouped["cached_tokens"] / grouped["prompt_tokens"]
pd.DataFrame(served).plot.bar(rot=0, ylabel="hit rate", figsize=(8, 4))
plt.show()

# %% [markdown]
# ## What they throw away
#
# Depth is a block's place in its prompt. A policy that evicts beginnings loses all that stands behind them
# too, because a prefix is only hit up to its first gap.

# %%
fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for name in ("lru", "fifo", "lfu"):
    depth = sweep.run(int(points.loc[name, "point"])).evictions["depth_blocks"]
    ax.plot(sorted(depth), [i / len(depth) for i in range(len(depth))], label=name)
ax.set_xlabel("depth of evicted blocks")
ax.set_ylabel("share of evictions at most so deep")
ax.legend()
plt.show()
