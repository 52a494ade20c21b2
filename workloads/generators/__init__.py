"""Generators of synthetic traffic, one file each."""
