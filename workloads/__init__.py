"""Requests: what they are, how traces are read and how traffic is generated.  Knows nothing of `sim`."""
