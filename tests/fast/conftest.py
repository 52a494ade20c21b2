"""Everything about the fast path is tested twice: with the compiled kernel and with arrays alone."""

import pytest

from sim.fast import kernel
from workloads.compiled import SWITCH


@pytest.fixture(autouse=True, scope="module", params=["arrays", "kernel"])
def pool(request):
    """Which pool decides."""
    if request.param == "kernel" and not kernel.compiled():
        pytest.skip("the kernel is not compiled here: no C compiler (or KVSIM_KERNEL=off) when kvsim was installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "off" if request.param == "arrays" else "on")
        yield request.param
