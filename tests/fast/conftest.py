"""Everything about the fast path is tested twice: with the compiled kernels and with arrays alone."""

import pytest

from sim.fast import kernel, keys
from workloads import fingerprint


@pytest.fixture(autouse=True, scope="module", params=["arrays", "kernel"])
def pool(request):
    """Which pool decides."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "arrays":
            for module in (kernel, keys, fingerprint):
                patch.setattr(module, "_KERNEL", None)
        elif not kernel.compiled():
            pytest.skip("no kernel: there was no C compiler when kvsim was installed, or KVSIM_KERNEL is off")
        yield request.param
