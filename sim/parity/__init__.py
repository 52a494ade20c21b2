"""Recordings of the reference and their replay."""
