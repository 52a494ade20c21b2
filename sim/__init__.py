"""kvsim: what would my KV cache do?  A discrete-event simulator of prefix-caching LLM serving."""
