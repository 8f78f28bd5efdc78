#!/bin/sh
# Runs the smoke suite on every supported CPython except $1, which runs all tests. Each has its own small virtual
# environment with NumPy and the package. A version that is not installed is reported in one line and is not an error.
# At the same time, the oldest Python found compiles the kernels with the oldest supported Numba, in another environment.
set -eu
here=$(dirname "$0")
main=$(sh "$here/python.sh" version "$1")
failed=

kernels() { # compiles the kernels with the oldest Numba, and compares their results
    oldest=$(sed -n 's/.*"numba>=\([0-9.]*\),.*/\1/p' pyproject.toml)
    for version in 3.10 3.11 3.12 3.13; do
        python=$(sh "$here/python.sh" find "$version")
        [ -z "$python" ] || break
    done
    venv=.venv-smoke-numba
    if ! cmp -s pyproject.toml "$venv/.installed"; then
        if ! { "$python" -m venv --clear "$venv" && "$venv/bin/python" -m pip install --quiet --no-compile \
            --disable-pip-version-check --only-binary numba,llvmlite --editable . "numba==$oldest.*"; } 2>"$venv.log"; then
            echo "Numba $oldest: cannot be installed here (see $venv.log), kernels skipped"
            return 0
        fi
        cp pyproject.toml "$venv/.installed"
    fi
    "$venv/bin/python" -m tools.kernels --into "$venv/images" >"$venv.log" 2>&1 </dev/null || return 1
    result=$("$venv/bin/python" -m tools.kernels.verify "$venv/images" </dev/null) || return 1
    echo "Python $version, Numba $oldest: $result"
}
kernels &
kernels=$!

for version in 3.10 3.11 3.12 3.13 3.14; do
    [ "$version" != "$main" ] || continue
    python=$(sh "$here/python.sh" find "$version")
    if [ -z "$python" ]; then
        echo "Python $version: not installed, smoke suite skipped"
        continue
    fi
    venv=.venv-smoke-$version
    if [ ! -x "$venv/bin/python" ] || ! cmp -s pyproject.toml "$venv/.installed"; then
        "$python" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable .
        cp pyproject.toml "$venv/.installed"
    fi
    printf 'Python %s: ' "$version"
    "$venv/bin/python" tests/smoke.py </dev/null || failed="$failed $version"
done

wait $kernels || failed="$failed $(sed -n 's/.*"numba>=\([0-9.]*\),.*/with Numba \1/p' pyproject.toml)"
if [ -n "$failed" ]; then
    echo "the smoke suite failed on Python$failed" >&2
    exit 1
fi
