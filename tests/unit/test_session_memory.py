"""What unspool reads of memory that programs write at the same time."""

from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from unspool.capture.session_memory import SessionMemory


def test_an_area_that_is_taken_while_areas_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy raises RuntimeError when what it has counted changes."""
    count = np.flatnonzero
    with closing(SessionMemory(1_000_000, 1 << 17, 0)) as memory:
        memory.header["claims"][3] = 7

        def counted(claims: NDArray[np.uint32]) -> NDArray[np.intp]:
            memory.header["claims"][5] = 9
            return count(claims)

        monkeypatch.setattr(np, "flatnonzero", counted)
        assert memory.claimed().tolist() == [3]
        assert memory.claimed().tolist() == [3, 5]
