"""Writes the descriptors of both gRPC packages of A2A, and of the well-known types that they use, as one FileDescriptorSet.

The official SDKs carry the descriptors: `a2a-sdk` 1.0 and later has `lf.a2a.v1`, and, for compatibility, `a2a.v1`. Options and
comments are left out, because only names, numbers and types are needed.

    .tools/venv/bin/python tools/grpc/descriptors.py crates/grpc/src/descriptors.binpb
"""

import sys

from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf import descriptor_pb2, empty_pb2, struct_pb2, timestamp_pb2

# The public imports of the A2A files that describe HTTP routes. Without options nothing refers to them.
WELL_KNOWN = [empty_pb2, struct_pb2, timestamp_pb2]


def without_options(message) -> None:
    for field, value in message.ListFields():
        if field.name == "options":
            keep_map_entry = getattr(value, "map_entry", False)
            message.ClearField("options")
            if keep_map_entry:
                message.options.map_entry = True
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                without_options(inner)


def main(target: str) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    for module in WELL_KNOWN:
        module.DESCRIPTOR.CopyToProto(files.file.add())
    well_known = {file.name for file in files.file}
    for module, name in [(a2a_v0_3_pb2, "a2a/v1/a2a.proto"), (a2a_pb2, "lf/a2a/v1/a2a.proto")]:
        file = files.file.add()
        module.DESCRIPTOR.CopyToProto(file)
        file.name = name
        kept = [dependency for dependency in file.dependency if dependency in well_known]
        file.dependency[:] = kept
        without_options(file)
    with open(target, "wb") as out:
        out.write(files.SerializeToString(deterministic=True))


main(sys.argv[1])
