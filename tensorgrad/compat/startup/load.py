"""Starts the import hook without importing tensorgrad, which takes a few milliseconds instead of a tenth of a second.

This file runs when Python starts, as a script: from `sitecustomize.py` next to it, or from the file that
`python -m tensorgrad.compat enable` writes.
"""

import importlib.util
import os
import sys

NAME = "tensorgrad.compat.import_hook"  # the package itself finds the module under this name when it is imported later

if NAME not in sys.modules:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(NAME, os.path.join(folder, "import_hook.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
sys.modules[NAME].start()
