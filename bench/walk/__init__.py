"""How fast stacks are walked, beside other unwinders: see __main__.py."""
