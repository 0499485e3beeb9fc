"""The tracer steps x86_64 programs on x86_64: elsewhere there is nothing to test."""

import os

collect_ignore = [] if os.uname().machine == "x86_64" else ["test_oracle.py"]
