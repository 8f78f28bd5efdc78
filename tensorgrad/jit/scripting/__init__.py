"""`torch.jit.script`: Python's source of functions and modules becomes a program of TorchScript.

The source is read with `inspect` and `ast`, and never executed from its text. `emitter.py` walks through a function and
writes its lines in the form that archives have, with the type of each value; `modules.py` does so for the classes of
modules; what comes out is compiled as a file's program is.
"""
