"""Sweeps: the points of a grid, run in parallel, resumable."""
