#!/bin/sh
# Creates the Python environments of the tests under .tools/: the official SDKs of A2A and MCP, the OpenAPI tools and pytest, pinned.
#
#   tools/install-python.sh                called by `make test`, from anywhere
#   tools/install-python.sh conformance    called by `make conformance`: the packages that the kits import, not the kits
#   tools/install-python.sh peer           called by `make bench`: the Python peer
#   tools/install-python.sh vibe           called by `make test-long`: the agent Mistral Vibe, as .tools/bin/vibe-acp
#
# Environment                  packages
#   .tools/venv                tools/python/requirements-interop.txt
#   .tools/venv-mcp            tools/python/requirements-mcp.txt
#   .tools/venv03              tools/python/requirements-interop03.txt (the SDKs of A2A 1.0 and 0.3 need separate environments)
#   .tools/venv-openapi        tools/python/requirements-openapi.txt
#   .tools/venv-conformance    tools/conformance/requirements.txt
#   .tools/venv-peer           tools/python/requirements-peer.txt
#   .tools/venv-vibe           tools/python/requirements-vibe.txt
# An environment that already has exactly these packages is left alone. PYTHON selects the interpreter (default: python3). Vibe
# needs a newer one than the others, which is also searched for under other names.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

fail() {
    echo "install-python: $*" >&2
    exit 1
}

# install ENVIRONMENT REQUIREMENTS MAIN-PACKAGE MINIMUM-PYTHON-3-MINOR [PATTERN-OF-KNOWN-`pip check`-COMPLAINTS]
install() {
    venv=$root/.tools/$1
    requirements=$root/tools/$2
    stamp=$venv/.installed
    # The requirements themselves are the stamp: any change of a pin creates the environment again.
    if cmp -s "$requirements" "$stamp" && [ -x "$venv/bin/python" ]; then
        return
    fi

    command -v "$python" >/dev/null 2>&1 || fail "$python is not on the PATH; these tests need Python 3.$4 or newer (set PYTHON to its name)"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, int(sys.argv[1])))' "$4" || fail "$python is older than 3.$4, which these tests need (set PYTHON to a newer one)"

    version=$(sed -n "s/^$3\(\[.*\]\)\{0,1\}==\([^ ]*\).*/\2/p" "$requirements")
    echo "installing $3 $version and what it needs under .tools/$1 ($("$python" --version 2>&1)) ..."
    rm -rf "$venv"
    mkdir -p "$root/.tools"
    "$python" -m venv "$venv" || fail "cannot create a virtual environment (on Debian: install python3-venv)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$requirements" \
        || fail "pip could not install the pinned packages; see its output above (is the index reachable?)"
    # The exit status also reports known complaints, so only the text counts.
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
if [ "${1:-}" = vibe ]; then
    # `python3` is often older, and pyenv has commands for versions that are not switched on.
    for candidate in "$python" python3.12 python3.13 python3.14 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    install venv-vibe python/requirements-vibe.txt mistral-vibe 12
    mkdir -p "$root/.tools/bin"
    ln -sfn ../venv-vibe/bin/vibe-acp "$root/.tools/bin/vibe-acp"
    exit 0
fi
install venv python/requirements-interop.txt a2a-sdk 10
install venv03 python/requirements-interop03.txt a2a-sdk 10
install venv-openapi python/requirements-openapi.txt schemathesis 10
install venv-mcp python/requirements-mcp.txt mcp 10
