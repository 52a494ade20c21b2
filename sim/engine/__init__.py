"""The engine as a process on the simulated clock, and the readable implementation of what it decides."""
