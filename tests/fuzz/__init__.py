"""Fuzzers: programs that run random cases for a given time, and print the seed of each case that fails.

python -m tests.fuzz kernels --seconds 60          every compiled kernel, compared with NumPy's
DEVICE=emulator python -m tests.fuzz kernels       every CUDA kernel on the emulated GPU, compared with NumPy's
python -m tests.fuzz stress --seconds 600          all loops of loops.py: kernels, signals, kills, forks, exits, files
python -m tests.fuzz stress --only programs        random programs, compared with PyTorch after every step
python -m tests.fuzz stress --only expressions     random calls in nine modes, compared with PyTorch's
python -m tests.fuzz stress --only signals --seed 7 --cases 1      repeats one case

cases.py      defines a case: a call as text, its arrays, and how it is run
calls.py      functions that the calls use in addition to PyTorch's
families.py   the table with the function that makes a random case for each family of kernels
kernels.py    runs a case with both kernels, compares the results, and shrinks cases that differ
programs.py   writes random programs, and makes those small that differ
expressions.py  the table of expressions, their modes and operands
beside_torch.py  how both compare, and how differences that are meant are told
exits.py      ten programs that end in ten ways
loading.py    damaged and malicious files for torch.load
loops.py      the table of loops that `stress` runs
__main__.py   distributes the time, and shows the progress bar and the summary
"""
