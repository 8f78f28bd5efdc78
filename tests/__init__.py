"""The tests, in folders named after the rooms that they try.

support/       what tests share: comparisons with torch (alike.py), Chromium, programs for forks and schedules
conformance/   PyTorch's own test databases: `python -m tests.conformance`; its test files: `.upstream`
cuda/          the CUDA device, on a GPU or on the emulated one (emulator/)
fuzz/          random cases without end: `python -m tests.fuzz`
programs/      whole programs, run under torch and here
smoke.py, smoke_kernels.py   what runs with every Python found
"""
