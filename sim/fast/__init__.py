"""The fast path: the same decisions as `sim.core`, taken on arrays.

A request's keys are dense integers, the pool is a handful of numpy arrays, and a request that only
decodes is a date in a calendar.  `sim.core` stays the readable truth; this package must agree with
it block by block, and `sim.fast.support.supports` says in words which engines it does not cover.
"""
