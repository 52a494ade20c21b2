"""What `_kernel.c` offers; it is compiled at installation where there is a C compiler."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

def add_segments(content: npt.NDArray[np.uint64], pieces: Sequence[tuple[int, int, int]], block_size: int) -> None: ...
def chain(content: npt.NDArray[np.uint64]) -> None: ...
