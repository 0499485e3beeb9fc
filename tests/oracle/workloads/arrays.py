"""numpy with OpenBLAS, in a thread of its own, since only threads that a program starts are stepped here."""

import sys
import threading

import numpy as np

ROUNDS = int(sys.argv[1])


def work() -> None:
    generator = np.random.default_rng(5)
    for _ in range(ROUNDS):
        a = generator.standard_normal((24, 24))
        b = a @ a.T + 24 * np.eye(24)
        assert np.allclose(np.linalg.solve(b, a), np.linalg.inv(b) @ a)
        assert np.linalg.svd(a)[1][0] > 0
        values = np.sort(generator.integers(0, 1000, 400))
        assert values[-1] == values.max()
        assert np.einsum("ij,ij->", a, a) > 0 and np.fft.fft(a[0]).shape == (24,)
        assert np.isfinite(np.exp(-np.abs(a)).sum(axis=0) + np.dot(a[0], a[1])).all()
        assert (a.astype(np.float32) * np.float32(2)).astype(np.int16).dtype == np.int16


thread = threading.Thread(target=work)
thread.start()
thread.join()
