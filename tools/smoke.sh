#!/bin/sh
# The smoke suite on every supported CPython but the one in $1, which runs all tests: each has a small virtual
# environment of its own, holding NumPy and the package. A version that is not on this machine is one line, no error.
# Meanwhile the oldest Python that is there compiles kernels with the oldest Numba that is allowed, in another one.
set -eu
here=$(dirname "$0")
main=$(sh "$here/python.sh" version "$1")
failed=

kernels() { # compiles and compares some, with the oldest Numba
    oldest=$(sed -n 's/.*"numba>=\([0-9.]*\),.*/\1/p' pyproject.toml)
    for version in 3.10 3.11 3.12 3.13; do
        python=$(sh "$here/python.sh" find "$version")
        [ -z "$python" ] || break
    done
    venv=.venv-smoke-numba
    if [ ! -e "$venv/.installed" ] || [ -n "$(find pyproject.toml -newer "$venv/.installed")" ]; then
        if ! { "$python" -m venv --clear "$venv" && "$venv/bin/python" -m pip install --quiet \
            --disable-pip-version-check --only-binary numba,llvmlite --editable . "numba==$oldest.*"; } 2>"$venv.log"; then
            echo "Numba $oldest: cannot be installed here ($venv.log says why), kernels skipped"
            return 0
        fi
        touch "$venv/.installed"
    fi
    told=$("$venv/bin/python" tests/smoke_kernels.py </dev/null) || return 1
    echo "Python $version: $told"
}
kernels &
kernels=$!

for version in 3.10 3.11 3.12 3.13 3.14; do
    [ "$version" != "$main" ] || continue
    python=$(sh "$here/python.sh" find "$version")
    if [ -z "$python" ]; then
        echo "Python $version: not on this machine, smoke suite skipped"
        continue
    fi
    venv=.venv-smoke-$version
    if [ ! -x "$venv/bin/python" ] || [ ! -e "$venv/.installed" ] || [ -n "$(find pyproject.toml -newer "$venv/.installed")" ]; then
        "$python" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable .
        touch "$venv/.installed"
    fi
    printf 'Python %s: ' "$version"
    "$venv/bin/python" tests/smoke.py </dev/null || failed="$failed $version"
done

wait $kernels || failed="$failed $(sed -n 's/.*"numba>=\([0-9.]*\),.*/with Numba \1/p' pyproject.toml)"
if [ -n "$failed" ]; then
    echo "the smoke suite failed on Python$failed" >&2
    exit 1
fi
