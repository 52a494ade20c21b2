"""Readers of the field's trace formats, one file each."""
