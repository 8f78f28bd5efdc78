"""Runs when Python starts in a process whose PYTHONPATH begins with this folder; see `compat/children.py`."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))

if os.environ.get("TENSORGRAD_COMPAT") == "1":
    with open(os.path.join(HERE, "load.py")) as file:
        exec(file.read(), {"__file__": file.name})

# This file hides the environment's own `sitecustomize`, if it has one: that one runs now, under its name.
hidden = PathFinder.find_spec(__name__, [p for p in sys.path if os.path.abspath(p) != HERE])
if hidden is not None and hidden.loader is not None:
    sys.modules[__name__] = importlib.util.module_from_spec(hidden)
    hidden.loader.exec_module(sys.modules[__name__])
