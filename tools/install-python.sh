#!/bin/sh
# Makes the Python environments of the tests: the official A2A SDKs, what reads the OpenAPI document, and pytest, pinned,
# under .tools/.
#
#   tools/install-python.sh                called by `make test`, from anywhere
#   tools/install-python.sh conformance    called by `make conformance`: what the kits import, and not the kits themselves
#   tools/install-python.sh peer           called by `make bench`: the peer that it measures
#
# Afterwards .tools/venv/bin/python has what tools/python/requirements-interop.txt names, .tools/venv03/bin/python
# what requirements-interop03.txt names (the SDKs of A2A 1.0 and 0.3 do not fit into one environment), and
# .tools/venv-openapi/bin/python what requirements-openapi.txt names; or .tools/venv-conformance/bin/python
# what tools/conformance/requirements.txt names; or .tools/venv-peer/bin/python what requirements-peer.txt names. What is
# already exactly that is left alone, without a word. PYTHON chooses the interpreter (python3 otherwise).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

fail() {
    echo "install-python: $*" >&2
    exit 1
}

# install name-under-.tools file-under-tools package-that-it-is-for oldest-minor-version-of-Python-3
#         [pattern-of-what-`pip check`-may-complain-about]
install() {
    venv=$root/.tools/$1
    requirements=$root/tools/$2
    stamp=$venv/.installed
    # The requirements themselves are the stamp: any change of a pin makes the environment anew.
    if cmp -s "$requirements" "$stamp" && [ -x "$venv/bin/python" ]; then
        return
    fi

    command -v "$python" >/dev/null 2>&1 || fail "$python is not on the PATH; these tests need Python 3.$4 or newer (set PYTHON to its name)"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, int(sys.argv[1])))' "$4" || fail "$python is older than 3.$4, which these tests need (set PYTHON to a newer one)"

    version=$(sed -n "s/^$3\(\[.*\]\)\{0,1\}==\([^ ]*\).*/\2/p" "$requirements")
    echo "installing $3 $version and what it needs under .tools/$1 ($("$python" --version 2>&1)) ..."
    rm -rf "$venv"
    mkdir -p "$root/.tools"
    "$python" -m venv "$venv" || fail "cannot make a virtual environment (on Debian: install python3-venv)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$requirements" \
        || fail "pip could not install the pinned packages; see its words above (is the index reachable?)"
    # Only what is said counts: the status is that of any complaint, also of one that is known.
    complaints=$("$venv/bin/python" -m pip check --disable-pip-version-check 2>&1) || true
    complaints=$(echo "$complaints" | grep -v -e '^No broken requirements found' -e "${5:-^$}" || true)
    [ -z "$complaints" ] || fail "the pins in tools/$2 do not fit together: $complaints"
    echo "  $(grep -c '^[^#].*==' "$requirements") packages"
    cp "$requirements" "$stamp"
}

if [ "${1:-}" = conformance ]; then
    install venv-conformance conformance/requirements.txt pytest 11
    exit 0
fi
if [ "${1:-}" = peer ]; then
    install venv-peer python/requirements-peer.txt opencode-a2a 11 '^opencode-a2a 1.4.0 has requirement certifi'
    exit 0
fi
install venv python/requirements-interop.txt a2a-sdk 10
install venv03 python/requirements-interop03.txt a2a-sdk 10
install venv-openapi python/requirements-openapi.txt schemathesis 10
