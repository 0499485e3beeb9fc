"""unspool shows what a running program is doing, and how certain that answer is."""
