#!/bin/sh
# Installs the pinned OpenCode, and the rg that it needs, under .tools/.
#
#   tools/install-opencode.sh         called by `make run` and `make test`, from anywhere; no arguments
#
# Afterwards:
#   .tools/bin/opencode               the native binary of this platform
#   .tools/bin/rg                     ripgrep; put .tools/bin on the PATH of OpenCode
#
# tools/opencode/package.json has the versions, package-lock.json their hashes. If .tools/ already holds exactly these
# versions, the script does nothing.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
pins=$root/tools/opencode
tools=$root/.tools
home=$tools/opencode
stamp=$home/.installed

fail() {
    echo "install-opencode: $*" >&2
    exit 1
}

# The whole lock file is the stamp: any change of a version or a hash installs again.
if cmp -s "$pins/package-lock.json" "$stamp" && [ -x "$tools/bin/opencode" ] && [ -x "$tools/bin/rg" ]; then
    exit 0
fi

command -v node >/dev/null 2>&1 || fail "node is not on the PATH; OpenCode is installed with npm, so install Node.js 20 or newer and try again"
command -v npm >/dev/null 2>&1 || fail "npm is not on the PATH; it comes with Node.js: install Node.js 20 or newer and try again"

version=$(node -p 'require(process.argv[1]).dependencies["opencode-ai"]' "$pins/package.json")
platform=$(node -p 'process.platform + "-" + process.arch')
case $platform in
linux-x64 | linux-arm64 | darwin-x64 | darwin-arm64) ;;
*) fail "there is no pinned rg for $platform; Longshore is tested on linux and darwin, x64 and arm64" ;;
esac

echo "installing OpenCode $version and ripgrep for $platform under .tools/ (about 60 MB to download) ..."
mkdir -p "$home" "$tools/bin"
rm -f "$stamp"
cp "$pins/package.json" "$pins/package-lock.json" "$pins/.npmrc" "$home/"
# `npm ci` would refuse the lock file, because npm leaves binaries of other platforms out of it. `npm install` checks
# the hashes in the lock file and installs other binaries in the exact version that opencode-ai names.
# Package scripts are off: the script of opencode-ai only finds the binary, and the loop below does that.
(cd "$home" && rm -rf node_modules && npm install --ignore-scripts --no-progress --loglevel=error >/dev/null) \
    || fail "npm could not install the pinned packages; see its output above (is the registry reachable?)"

# The packages differ in C library and required CPU. The first binary that runs is used.
chosen=
for variant in "" -baseline -musl -baseline-musl; do
    package=$home/node_modules/opencode-$platform$variant
    binary=$package/bin/opencode
    [ -x "$binary" ] || continue
    if [ -z "$chosen" ] && [ "$("$binary" --version 2>/dev/null)" = "$version" ]; then
        chosen=$binary
        echo "  opencode $version ($(basename "$package"))"
    else
        # The other variants are 170 MB each.
        rm -rf "$package"
    fi
done
[ -n "$chosen" ] || fail "no package of OpenCode $version runs on this machine ($platform)"

ripgrep=$home/node_modules/@vscode/ripgrep-$platform/bin/rg
[ -x "$ripgrep" ] || fail "npm did not install the rg of @vscode/ripgrep-$platform"
echo "  $("$ripgrep" --version | head -n 1)"

ln -sfn "../${chosen#"$tools/"}" "$tools/bin/opencode"
ln -sfn "../${ripgrep#"$tools/"}" "$tools/bin/rg"
cp "$pins/package-lock.json" "$stamp"
