#!/bin/sh
# Installs the pinned agents that speak ACP under .tools/, for the tests.
#
#   tools/install-acp-agents.sh       called by `make test`, from anywhere; no arguments
#
# Afterwards:
#   .tools/bin/qwen                   Qwen Code
#   .tools/bin/claude-agent-acp       Claude Agent
#
# tools/acp-agents/package.json has the versions, package-lock.json their hashes. If .tools/ already holds exactly these
# versions, the script does nothing.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
pins=$root/tools/acp-agents
tools=$root/.tools
home=$tools/acp-agents
stamp=$home/.installed

fail() {
    echo "install-acp-agents: $*" >&2
    exit 1
}

# The whole lock file is the stamp: any change of a version or a hash installs again.
if cmp -s "$pins/package-lock.json" "$stamp" && [ -x "$tools/bin/qwen" ] && [ -x "$tools/bin/claude-agent-acp" ]; then
    exit 0
fi

command -v npm >/dev/null 2>&1 || fail "npm is not on the PATH; it comes with Node.js: install Node.js 20 or newer and try again"

echo "installing Qwen Code and Claude Agent under .tools/acp-agents (about 350 MB) ..."
mkdir -p "$home" "$tools/bin"
rm -f "$stamp"
cp "$pins/package.json" "$pins/package-lock.json" "$pins/.npmrc" "$home/"
# `npm ci` would refuse the lock file, because npm leaves binaries of other platforms out of it. `npm install` checks the hashes in
# the lock file. No package script runs: the agents are plain JavaScript, and the native binary of one comes in a package of its own.
(cd "$home" && rm -rf node_modules && npm install --ignore-scripts --no-progress --loglevel=error >/dev/null) \
    || fail "npm could not install the pinned packages; see its output above (is the registry reachable?)"
for agent in qwen claude-agent-acp; do
    [ -x "$home/node_modules/.bin/$agent" ] || fail "npm did not install $agent"
    ln -sfn "../acp-agents/node_modules/.bin/$agent" "$tools/bin/$agent"
done
for package in @qwen-code/qwen-code @agentclientprotocol/claude-agent-acp; do
    echo "  $package $(node -p 'require(process.argv[1]).version' "$home/node_modules/$package/package.json")"
done
cp "$pins/package-lock.json" "$stamp"
