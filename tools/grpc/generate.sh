#!/bin/sh
# Generates crates/grpc/src/generated: the Rust types of the gRPC packages of A2A 1.0 and 0.3, their ProtoJSON, and client stubs.
#
#   tools/grpc/generate.sh    needs .tools/venv (tools/install-python.sh); no protoc
#
# The output is committed. Run this again when a newer version of A2A adds a field.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
crate=$root/crates/grpc/src
"$root/.tools/venv/bin/python" "$root/tools/grpc/descriptors.py" "$crate/descriptors.binpb"
rm -rf "$crate/generated"
mkdir -p "$crate/generated"
cargo run --quiet --target-dir "$root/target/generate-grpc" --manifest-path "$root/tools/grpc/Cargo.toml" -- "$crate/descriptors.binpb" "$crate/generated"
