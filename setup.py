"""What `pyproject.toml` cannot say yet: modules in C, compiled where there is a compiler.

Where there is none they are left out, and the same is done with arrays, only slower.
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("sim.fast._kernel", ["sim/fast/_kernel.c"], optional=True)])
