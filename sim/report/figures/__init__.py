"""Every figure of a report, one file per family.

Each function takes the tables it draws and optional axes, and returns the axes; beside it stands
what the figure says in one sentence, from the same numbers.
"""
