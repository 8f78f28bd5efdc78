"""Type stubs for the ops, generated from their rows: `python -m tensorgrad._stubs`."""
