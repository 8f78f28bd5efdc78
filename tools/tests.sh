#!/bin/sh
# All tests, twice at the same time: with compiled kernels and with NumPy alone (TENSORGRAD_FAST=0).
#   tools/tests.sh PYTHON [arguments of pytest ...]
run=$1
shift
if ! "$run" -c 'import numba' 2>/dev/null; then
    exec "$run" -m pytest "$@"
fi
log=$(mktemp)
# A shell starts what runs beside it with the interrupt signal ignored; some tests send it.
listening='import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])'
TENSORGRAD_FAST=0 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$run" -c "$listening" -m pytest "$@" >"$log" 2>&1 &
alone=$!
trap 'kill "$alone" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT TERM
"$run" -m pytest "$@"
fast_result=$?
wait "$alone"
alone_result=$?
echo '--- the same tests with NumPy alone (TENSORGRAD_FAST=0):'
if [ "$alone_result" -eq 0 ]; then tail -n 1 "$log"; else cat "$log"; fi
[ "$fast_result" -eq 0 ] && [ "$alone_result" -eq 0 ]
