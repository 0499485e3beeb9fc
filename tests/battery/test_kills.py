"""Ends at random moments: of the program, of unspool, of the disk."""
