#!/bin/sh
# Finds supported interpreters on this machine: CPython 3.10 to 3.14 with the venv module, each checked by running it.
#   python.sh find VERSION           print the path of an interpreter of that version (3.12), or nothing
#   python.sh venv FOLDER [PYTHON]   create a virtual environment from PYTHON, or from the first suitable one found
#   python.sh matches FOLDER PYTHON  fail with a message if FOLDER was created from another version than PYTHON's
#   python.sh version PYTHON         print the version (3.12) of a supported interpreter, or nothing
set -u

version() { # prints the version of interpreter $1 if it is supported; pyenv's shims for missing versions fail here
    "$1" -c 'import ensurepip, sys, venv
if sys.implementation.name == "cpython" and (3, 10) <= sys.version_info[:2] <= (3, 14):
    print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null
}

pyenv_versions() { # prints the interpreters of version $1 that pyenv has built, activated or not
    command -v pyenv >/dev/null 2>&1 || return 0
    for python in "$(pyenv root)/versions/$1".*/bin/python; do
        [ ! -x "$python" ] || echo "$python"
    done
}

find_version() {
    { echo "python$1"; echo python3; pyenv_versions "$1"; } | while read -r python; do
        if [ "$(version "$python")" = "$1" ]; then
            command -v "$python"
            break
        fi
    done
}

find_any() { # python3 first: it is the user's default
    if [ -n "$(version python3)" ]; then
        command -v python3
        return
    fi
    for wanted in 3.13 3.12 3.11 3.14 3.10; do
        python=$(find_version "$wanted")
        if [ -n "$python" ]; then
            echo "$python"
            return
        fi
    done
}

fail() {
    echo "$1" >&2
    exit 1
}

case "${1:-}" in
version) version "$2" ;;
find) find_version "$2" ;;
matches)
    asked=$(version "$3")
    [ -n "$asked" ] || fail "PYTHON=$3 is not CPython 3.10 to 3.14 with its venv module"
    if [ -x "$2/bin/python" ]; then
        made=$(version "$2/bin/python")
        [ "$made" = "$asked" ] || fail "$2 was created with Python $made, but PYTHON=$3 is $asked: run 'make clean' first"
    fi
    ;;
venv)
    python=${3:-$(find_any)}
    [ -n "$python" ] || fail "no CPython 3.10 to 3.14 with its venv module was found: install one, or pass PYTHON=/path/to/python3"
    [ -n "$(version "$python")" ] || fail "PYTHON=$python is not CPython 3.10 to 3.14 with its venv module"
    echo "creating $2 with $python ($(version "$python"))"
    "$python" -m venv --clear "$2"
    ;;
*) fail "usage: python.sh find VERSION | venv FOLDER [PYTHON] | matches FOLDER PYTHON | version PYTHON" ;;
esac
