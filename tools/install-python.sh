#!/bin/sh
# Makes the Python environments of the tests: the official A2A SDKs, what reads the OpenAPI document, and pytest, pinned,
# under .tools/.
#
#   tools/install-python.sh           called by `make test`, from anywhere; no arguments
#
# Afterwards .tools/venv/bin/python has what tools/python/requirements-interop.txt names, .tools/venv03/bin/python
# what requirements-interop03.txt names (the SDKs of A2A 1.0 and 0.3 do not fit into one environment), and
# .tools/venv-openapi/bin/python what requirements-openapi.txt names. What is already exactly that is left alone, without
# a word. PYTHON chooses the interpreter (python3 otherwise).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

fail() {
    echo "install-python: $*" >&2
    exit 1
}

# install name-under-.tools name-under-tools/python package-that-it-is-for
install() {
    venv=$root/.tools/$1
    requirements=$root/tools/python/$2
    stamp=$venv/.installed
    # The requirements themselves are the stamp: any change of a pin makes the environment anew.
    if cmp -s "$requirements" "$stamp" && [ -x "$venv/bin/python" ]; then
        return
    fi

    command -v "$python" >/dev/null 2>&1 || fail "$python is not on the PATH; the interop tests need Python 3.10 or newer (set PYTHON to its name)"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "$python is older than 3.10, which the A2A SDKs need (set PYTHON to a newer one)"

    version=$(sed -n "s/^$3[^=]*==\([^ ]*\).*/\1/p" "$requirements")
    echo "installing $3 $version for Python and pytest under .tools/$1 ($("$python" --version 2>&1)) ..."
    rm -rf "$venv"
    mkdir -p "$root/.tools"
    "$python" -m venv "$venv" || fail "cannot make a virtual environment (on Debian: install python3-venv)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$requirements" \
        || fail "pip could not install the pinned packages; see its words above (is the index reachable?)"
    "$venv/bin/python" -m pip check --quiet --disable-pip-version-check \
        || fail "the pins in tools/python/$2 do not fit together"
    echo "  $(grep -c '^[^#].*==' "$requirements") packages"
    cp "$requirements" "$stamp"
}

install venv requirements-interop.txt a2a-sdk
install venv03 requirements-interop03.txt a2a-sdk
install venv-openapi requirements-openapi.txt schemathesis
