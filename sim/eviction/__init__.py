"""Eviction policies: each is a free queue with another order."""
