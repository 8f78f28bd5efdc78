"""Compiles the kernels into the files that the package carries, one for each level of processors.

    python -m tools.kernels                      for this machine: only the families that have changed
    python -m tools.kernels --level x86-64-v3    for a level, on any machine; several times
    python -m tools.kernels --all                for all levels, as for a release

    __main__.py   the command: which families, by which processes
    compile.py    what such a process does, and what is written
    entries.py    compiles one kernel to an object file, with an entry that takes its arguments as numbers
    link.py       links the object files of a family
    dialect.py    Numba's decorators and types, for the files of kernels
    internals.py  every use of undocumented parts of Numba and llvmlite, and the versions they were tested with
    lean.py, shortcuts.py   functions that replace Numba's, to compile faster
    verify.py     compares each kernel with NumPy's in a small program

Nothing depends on the machine that builds: the same sources give the same bytes.
"""
