"""One manager per kind of KV-cache group."""
