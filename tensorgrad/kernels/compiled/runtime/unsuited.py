"""The exception with which a compiled kernel passes a call back to NumPy's kernel."""


class Unsuited(Exception):
    """An array that a compiled kernel does not support (read-only, with gaps, of another dtype): NumPy's takes over."""
