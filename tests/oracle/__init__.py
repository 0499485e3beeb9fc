"""The truth at every instruction: programs are single-stepped, their true stacks kept by watching calls and
returns, and each is compared with what the product's walker says there."""
