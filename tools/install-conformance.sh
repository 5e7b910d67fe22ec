#!/bin/sh
# Makes the Python environment of the conformance kits, pinned, under .tools/. The kits themselves are not installed.
#
#   tools/install-conformance.sh      called by `make conformance`, from anywhere; no arguments
#
# Afterwards .tools/venv-conformance/bin/python has what tools/conformance/requirements.txt names. What is already exactly
# that is left alone, without a word. PYTHON chooses the interpreter (python3 otherwise).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
venv=$root/.tools/venv-conformance
requirements=$root/tools/conformance/requirements.txt
stamp=$venv/.installed

fail() {
    echo "install-conformance: $*" >&2
    exit 1
}

# The requirements themselves are the stamp: any change of a pin makes the environment anew.
if cmp -s "$requirements" "$stamp" && [ -x "$venv/bin/python" ]; then
    exit 0
fi

command -v "$python" >/dev/null 2>&1 || fail "$python is not on the PATH; the kits need Python 3.11 or newer (set PYTHON to its name)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than 3.11, which the kits need (set PYTHON to a newer one)"

echo "installing what the conformance kits import under .tools/venv-conformance ($("$python" --version 2>&1)) ..."
rm -rf "$venv"
mkdir -p "$root/.tools"
"$python" -m venv "$venv" || fail "cannot make a virtual environment (on Debian: install python3-venv)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$requirements" \
    || fail "pip could not install the pinned packages; see its words above (is the index reachable?)"
"$venv/bin/python" -m pip check --quiet --disable-pip-version-check \
    || fail "the pins in tools/conformance/requirements.txt do not fit together"
echo "  $(grep -c '^[^#].*==' "$requirements") packages"
cp "$requirements" "$stamp"
