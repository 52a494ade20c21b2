"""What `pyproject.toml` cannot say yet: modules in C, compiled where there is a compiler.

Where there is none they are left out, and the same is done with arrays, only slower.
"""

from setuptools import Extension, setup

KERNELS = ("sim.fast._kernel", "workloads._kernel")

setup(ext_modules=[Extension(name, [name.replace(".", "/") + ".c"], optional=True) for name in KERNELS])
