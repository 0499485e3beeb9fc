"""What is remembered of the lists of modules that were published."""

import numpy as np

from unspool.capture.code_history import CodeHistory


def test_old_lists_are_forgotten() -> None:
    """Nothing is claimed of a sample that was walked with one of them."""
    history = CodeHistory("x86_64")
    for epoch in range(1, 5001):
        history.published(epoch, 0)
    assert history.kept_all(np.array([5000, 4500, 1, 3], np.uint32), 0).tolist() == [True, True, False, False]
