//! Settings of other gateways that this version does not support.

/// Variables of `opencode-a2a` and `iac-code` that have no effect in this version. Setting one causes a warning.
pub const NOT_SUPPORTED: &[&str] = &[
    "A2A_PROTOCOL_VERSION",
    "A2A_SUPPORTED_PROTOCOL_VERSIONS",
    "IACCODE_A2A_API_KEY_HEADER",
    "IACCODE_A2A_BASIC_PASSWORD",
    "IACCODE_A2A_BASIC_USERNAME",
];
