"""Fuzzers: programs that make random cases for as long as they are given, and name the seed of each that fails.

python -m tests.fuzz kernels --seconds 60          every compiled kernel beside NumPy's
DEVICE=emulator python -m tests.fuzz kernels       every CUDA kernel on the emulated GPU, beside NumPy's
python -m tests.fuzz stress --seconds 600          all loops of loops.py: kernels, signals, kills, forks, files
python -m tests.fuzz stress --only signals --seed 7 --cases 1      one case once more

cases.py      what a case is: a call written as text, its arrays, and how it is run
calls.py      functions that the calls name besides PyTorch's
families.py   the table: for each family of kernels the function that makes a random case
kernels.py    runs a case by both kernels, compares, and makes a case that differs smaller
loading.py    damaged and hostile files for torch.load
loops.py      the table of loops that `stress` runs
__main__.py   the time that each gets, the progress bar, and the summary
"""
