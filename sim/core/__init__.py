"""The part that decides: pool, hashing, managers, scheduler.  No clock, no tables, no YAML."""
