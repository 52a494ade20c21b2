"""Figures computed from workloads and results."""
