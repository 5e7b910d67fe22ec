#!/bin/sh
# Makes the Python environment of the interop tests: the official A2A SDK and pytest, pinned, under .tools/.
#
#   tools/install-python.sh           called by `make test`, from anywhere; no arguments
#
# Afterwards .tools/venv/bin/python has what tools/python/requirements-interop.txt names. When it already has
# exactly that, this says nothing and ends at once. PYTHON chooses the interpreter (python3 otherwise).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
requirements=$root/tools/python/requirements-interop.txt
venv=$root/.tools/venv
stamp=$venv/.installed
python=${PYTHON:-python3}

fail() {
    echo "install-python: $*" >&2
    exit 1
}

# The requirements themselves are the stamp: any change of a pin makes the environment anew.
if cmp -s "$requirements" "$stamp" && [ -x "$venv/bin/python" ]; then
    exit 0
fi

command -v "$python" >/dev/null 2>&1 || fail "$python is not on the PATH; the interop tests need Python 3.10 or newer (set PYTHON to its name)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "$python is older than 3.10, which the A2A SDK needs (set PYTHON to a newer one)"

sdk=$(sed -n 's/^a2a-sdk[^=]*==//p' "$requirements")
echo "installing the A2A SDK $sdk for Python and pytest under .tools/venv ($("$python" --version 2>&1)) ..."
rm -rf "$venv"
mkdir -p "$root/.tools"
"$python" -m venv "$venv" || fail "cannot make a virtual environment (on Debian: install python3-venv)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$requirements" \
    || fail "pip could not install the pinned packages; see its words above (is the index reachable?)"
"$venv/bin/python" -m pip check --quiet --disable-pip-version-check \
    || fail "the pins in tools/python/requirements-interop.txt do not fit together"
echo "  $(grep -c '==' "$requirements") packages"
cp "$requirements" "$stamp"
