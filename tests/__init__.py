"""Everything that checks unspool; tests import helpers from here as `tests.…`."""
