# %% [markdown]
# # Images in the prompt
#
# An image becomes hundreds of placeholder tokens that are the same for every image. What tells two images
# apart is an identifier in the keys of the blocks that they cover. So images hit like text does: only
# together with everything that stands before them. `configs/images.yaml` asks what that means.

# %%
import matplotlib.pyplot as plt

import sim

OUT = "../results"
CONFIG = "../configs/images.yaml"
workload = sim.inspect(CONFIG)
{key: workload.result["features"][key] for key in ("image_requests", "images", "distinct_images", "image_tokens")}

# %% [markdown]
# Popular images come again and again, so most of their tokens could be found:

# %%
print(workload.why)

# %%
results = sim.run(CONFIG, changes={"workload.requests": 500}, out=OUT)
results

# %% [markdown]
# The prompt of a request whose first image is in the cache is short. The table of requests tells how many
# images each had and how many tokens were found:

# %%
requests = results.requests
by_images = requests.groupby("mm_items")[["prompt_tokens", "cached_tokens"]].mean()
by_images.plot.bar(rot=0, xlabel="images of a request", ylabel="tokens, mean", figsize=(8, 4))
plt.show()

# %% [markdown]
# With two images, the second one is only found behind the same first one: the cached share falls with the
# number of images.
#
# ## Text in front of an image
#
# Now the user's text moves in front of the images. A single block of it that differs is enough to hide the
# images behind it.

# %%
sweep = sim.sweep(CONFIG, changes={"workload.requests": 500}, out=OUT, resume=True)
sweep.table("hit_rate.tokens", "tokens.encoder", "latency.vllm:time_to_first_token_seconds.p99")

# %%
sweep.plot.lines("hit_rate", across="workload.text_before_tokens", by="memory.num_gpu_blocks")

# %% [markdown]
# Memory cannot buy back what the order of a prompt gives away: put what is shared first.
#
# ## The encoder
#
# Before its tokens can be computed, an image has to pass the encoder, unless the cache has them all. What
# the prefix cache saves, it saves twice:

# %%
best = sweep.points.sort_values("hit_rate.tokens").iloc[[0, -1]]
best[["workload.text_before_tokens", "memory.num_gpu_blocks", "tokens.encoder", "tokens.computed_prefill"]]

# %% [markdown]
# ## Images that stay in a conversation
#
# In a chat, an image is part of every later prompt. The same engine, with chats:

# %%
chat = sim.run(
    CONFIG,
    changes={
        "name": "images_in_chats",
        "workload": {
            "kind": "multimodal_chat",
            "sessions": 60,
            "images": 60,
            "image_share": 0.3,
            "arrivals": {"poisson": {"rate_per_s": 1.0}},
        },
    },
    out=OUT,
)
turns = chat.requests.groupby("turn")[["cached_tokens", "prompt_tokens"]].sum()
shares = 100 * turns["cached_tokens"] / turns["prompt_tokens"]
shares.plot.bar(rot=0, xlabel="turn of the conversation", ylabel="% of prompt tokens found", figsize=(8, 4))
plt.show()
