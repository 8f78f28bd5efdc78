#!/bin/sh
# Runs the smoke suite on every supported CPython except $1, which runs all tests. Each has its own small virtual
# environment with NumPy and the package. A version that is not installed is reported in one line and is not an error.
# At the same time, the oldest Python found compiles the kernels with the oldest supported Numba, in another environment.
# If $2 is "prepare", nothing is tested: the environments are made, and the kernels compiled.
set -eu
here=$(dirname "$0")
all_tests=$1
prepare=${2:-}
main=$(sh "$here/python.sh" version "$all_tests")
failed=

install() { # install VENV PACKAGE...: by the pip of $all_tests; to give each environment its own takes as long again
    for_python=$1/bin/python
    shift
    "$all_tests" -m pip --python "$for_python" install --quiet --disable-pip-version-check --no-compile "$@"
}

checkout() { # checkout VENV PACKAGE...: the package, after others. With pip's isolated build, each would install Numba
    install "$@" hatchling editables 'numpy>=2' && install "$1" --no-build-isolation --editable .
}

kernels() { # compiles the kernels with the oldest Numba, and compares their results
    oldest=$(sed -n 's/.*"numba>=\([0-9.]*\),.*/\1/p' pyproject.toml | head -n 1)
    for version in 3.10 3.11 3.12 3.13; do
        python=$(sh "$here/python.sh" find "$version")
        [ -z "$python" ] || break
    done
    venv=.venv-smoke-numba
    if ! cmp -s pyproject.toml "$venv/.installed"; then
        if ! { "$python" -m venv --clear --without-pip "$venv" &&
            checkout "$venv" --only-binary numba,llvmlite "numba==$oldest.*"; } 2>"$venv.log"; then
            echo "Numba $oldest: cannot be installed here (see $venv.log), kernels skipped"
            return 0
        fi
        cp pyproject.toml "$venv/.installed"
    fi
    "$venv/bin/python" -m tools.kernels --into "$venv/images" >"$venv.log" 2>&1 </dev/null || return 1
    [ "$prepare" != prepare ] || return 0
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
        "$python" -m venv --clear --without-pip "$venv"
        checkout "$venv"
        cp pyproject.toml "$venv/.installed"
    fi
    [ "$prepare" != prepare ] || continue
    printf 'Python %s: ' "$version"
    "$venv/bin/python" tests/smoke.py </dev/null || failed="$failed $version"
done

wait $kernels || failed="$failed $(sed -n 's/.*"numba>=\([0-9.]*\),.*/with Numba \1/p' pyproject.toml | head -n 1)"
if [ -n "$failed" ]; then
    echo "the smoke suite failed on Python$failed" >&2
    exit 1
fi
