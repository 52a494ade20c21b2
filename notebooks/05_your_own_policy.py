# %% [markdown]
# # Your own eviction policy
#
# Least recently used treats a block that one request needed like one that a hundred did. This notebook writes
# a policy that does not, runs it in the whole engine against the built-in ones, and looks at what it does
# differently.

# %%
import matplotlib.pyplot as plt
import pandas as pd

import sim
from sim.eviction.base import RankedPolicy

OUT = "../results"
CONFIG = "../configs/policy_shootout.yaml"
SHORTER = {"workloads.0.limit": 120, "workloads.1.limit": 80, "workloads.2.limit": 40}

# %% [markdown]
# ## The policy
#
# A policy that ranks blocks when nobody holds them any more needs one method: the lowest rank is evicted
# first. `self.view` knows each block's facts: how often it was hit, when it was used last, how deep it lies
# in its prompt, who computed it. Nothing in it knows the future.
#
# Ours grants every hit a span of time: a block that was hit twice is treated as if it had been used two
# seconds later than it was.


# %%
class PatientLru(RankedPolicy):
    """Least recently used, where each hit counts as a later use."""

    def __init__(self, blocks, context, *, seconds_per_hit=1.0):
        super().__init__(blocks, context)
        self.seconds_per_hit = seconds_per_hit

    def rank(self, block):
        """When it was used last, and some patience for each hit; the end of a prompt goes before its beginning."""
        return self.view.last_used_at(block) + self.seconds_per_hit * self.view.hits(block), -self.view.depth(block)


# %% [markdown]
# ## Run it
#
# A policy is named `module:Class`; in a notebook the module is `__main__`. Its settings stand beside it.
# (In a sweep with several jobs, put the class in a file, and name that.)


# %%
def run(policy, **settings):
    """One run of the shootout's requests under a policy."""
    changes = SHORTER | {"eviction": {"policy": policy, **settings}}
    return sim.run(CONFIG, changes=changes, out=OUT, overwrite=True)


lru = run("lru")
mine = run("__main__:PatientLru")
sim.compare([lru, mine]).figures.loc[["hit_rate.tokens", "evictions", "steps"]]

# %% [markdown]
# While it ran, the pool has checked after every call that the policy neither lost a block nor gave one out
# twice; a mistake in a policy ends a run with a line that says which block.
#
# ## How patient should it be?
#
# No patience is LRU. With very much of it, time no longer counts: blocks go by how often they were hit.

# %%
seconds = [0, 0.05, 0.1, 0.2, 0.5, 1, 2]
rates = [run("__main__:PatientLru", seconds_per_hit=float(s)).summary["hit_rate"]["tokens"] for s in seconds]
belady = run("belady").summary["hit_rate"]["tokens"]

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(range(len(seconds)), rates, "o-", label="PatientLru")
ax.axhline(lru.summary["hit_rate"]["tokens"], color="gray", linestyle="--", label="lru")
ax.axhline(belady, color="black", linestyle=":", label="belady, which knows the future")
ax.set_xticks(range(len(seconds)), seconds)
ax.set_xlabel("seconds of patience per hit")
ax.set_ylabel("hit rate of prompt tokens")
ax.legend()
plt.show()

# %% [markdown]
# ## What it keeps
#
# The hit rate over time shows when it pulls ahead:

# %%
fig, axes = plt.subplots(1, 2, figsize=(12, 4), sharey=True, layout="constrained")
lru.plot.hit_rate_over_time(ax=axes[0])
mine.plot.hit_rate_over_time(ax=axes[1])
axes[0].set_title("lru")
axes[1].set_title("PatientLru")
plt.show()

# %% [markdown]
# Blocks that had been hit before they were evicted are those that a policy may regret.

# %%
pd.DataFrame(
    {
        name: results.evictions["hits"].clip(upper=3).value_counts(normalize=True).sort_index()
        for name, results in (("lru", lru), ("PatientLru", mine))
    }
).rename(index={3: "3 or more"}).rename_axis("hits before eviction").map("{:.1%}".format)
