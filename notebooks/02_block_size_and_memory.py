# %% [markdown]
# # Block size and memory
#
# Two numbers decide what a prefix cache can do: how much memory it has, and how large its blocks are.
# Only whole blocks are shared, so small blocks find more of a prompt again; memory decides how long they
# stay. `configs/block_size_by_memory.yaml` asks both questions of chats with short turns.

# %%
import matplotlib.pyplot as plt

import sim

OUT = "../results"
CONFIG = "../configs/block_size_by_memory.yaml"
sim.load(CONFIG).sweep.grid

# %% [markdown]
# ## Before anything runs: what could be hit?
#
# `sim.inspect` reads the workload as an infinite cache would, and says what keeps it from more.

# %%
workload = sim.inspect(CONFIG)
print(workload.why)

# %% [markdown]
# A curve of hit rate over capacity needs no simulation of time: requests go through the cache one after
# another. It shows where memory stops paying, and how far LRU is from the optimum.

# %%
curves = sim.curve(CONFIG)
curves.plot()

# %% [markdown]
# ## The sweep
#
# With time, requests share the memory with those that run beside them. Every combination is one run; what
# is finished stays on disk, and `resume=True` leaves it alone when the cell is executed again. (Half of the
# sessions are enough here.)

# %%
sweep = sim.sweep(CONFIG, changes={"workload.sessions": 75}, out=OUT, jobs=2, resume=True)
sweep.table("hit_rate.tokens", "evictions", "preemptions").head(8)

# %%
fig, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
sweep.plot.heat_map("hit_rate", ax=axes[0])
sweep.plot.heat_map("ttft_p99", ax=axes[1])
plt.show()

# %% [markdown]
# Read a column from top to bottom for the price of large blocks, a row from left to right for that of
# little memory. The next figure puts memory on the axis, and marks the smallest budget that keeps 90 % of
# the best hit rate:

# %%
sweep.plot.hit_rate_against_memory()

# %% [markdown]
# Every figure of every point is in `sweep.points`, so any other question is a line of pandas. How many
# tokens does each block size lose against the smallest one, at the largest budget?

# %%
points = sweep.points
largest = points[points["memory.kv_cache_memory"] == points["memory.kv_cache_memory"].iloc[-1]]
rates = largest.set_index("engine.block_size")["hit_rate.tokens"]
(rates - rates.iloc[0]).rename("hit rate lost").map("{:+.2%}".format)

# %% [markdown]
# ## Where the bytes are
#
# A budget in bytes becomes blocks by the model's layers. `sim.plan` shows the account.

# %%
sim.plan(model="llama-3.1-8b", kv_cache_memory="4GiB", max_model_len=8192, block_size=16)
