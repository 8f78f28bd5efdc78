"""Where a record of PyTorch's database differs here on purpose or for a known reason.

record name -> (the reason, a text that all of its differences contain). A record that comes to agree must leave.
"""

KNOWN: dict[str, tuple[str, str]] = {}
