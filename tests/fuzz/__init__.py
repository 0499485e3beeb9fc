"""Fuzzing of the Python parts that read untrusted input."""
