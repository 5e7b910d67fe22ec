#!/bin/sh
# Installs the pinned SDKs of A2A and MCP for JavaScript under .tools/, for the interop tests, with what their servers need.
#
#   tools/install-node-clients.sh     called by `make test`, from anywhere; no arguments
#
# Afterwards .tools/node-clients/node_modules has a2a-v1 and a2a-v03 (@a2a-js/sdk of A2A 1.0 and of 0.3) and
# @modelcontextprotocol/sdk.
#
# tools/node-clients/package.json has the versions, package-lock.json their hashes. If .tools/ already holds exactly these
# versions, the script does nothing.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
pins=$root/tools/node-clients
home=$root/.tools/node-clients
stamp=$home/.installed

fail() {
    echo "install-node-clients: $*" >&2
    exit 1
}

# The whole lock file is the stamp: any change of a version or a hash installs again.
if cmp -s "$pins/package-lock.json" "$stamp" && [ -d "$home/node_modules" ]; then
    exit 0
fi

command -v npm >/dev/null 2>&1 || fail "npm is not on the PATH; it comes with Node.js: install Node.js 20 or newer and try again"

echo "installing the A2A clients for JavaScript under .tools/node-clients (about 30 MB) ..."
mkdir -p "$home"
rm -f "$stamp"
cp "$pins/package.json" "$pins/package-lock.json" "$pins/.npmrc" "$home/"
# No package script runs: the clients are plain JavaScript.
(cd "$home" && npm ci --ignore-scripts --no-progress --loglevel=error >/dev/null) \
    || fail "npm could not install the pinned packages; see its words above (is the registry reachable?)"
for client in a2a-v1 a2a-v03; do
    echo "  $client is @a2a-js/sdk $(node -p 'require(process.argv[1]).version' "$home/node_modules/$client/package.json")"
done
cp "$pins/package-lock.json" "$stamp"
