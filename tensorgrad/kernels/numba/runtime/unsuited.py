"""The exception by which a compiled kernel leaves a call to NumPy's."""


class Unsuited(Exception):
    """An array that a compiled kernel was not made for (read-only, with gaps, of another dtype): NumPy's takes over."""
