#!/bin/sh
# The smoke suite on every supported CPython but the one in $1, which runs all tests: each has a small virtual
# environment of its own, holding NumPy and the package. A version that is not on this machine is one line, no error.
set -eu
here=$(dirname "$0")
main=$(sh "$here/python.sh" version "$1")
failed=

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

if [ -n "$failed" ]; then
    echo "the smoke suite failed on Python$failed" >&2
    exit 1
fi
