"""Other unwinders on a sample of the steps that the oracle checks."""
