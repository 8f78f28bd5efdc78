"""What type checkers need to know of the ops, generated from their rows: `python -m tensorgrad._stubs`."""
