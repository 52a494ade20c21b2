"""How long a step takes, and the catalog of GPUs and models."""
