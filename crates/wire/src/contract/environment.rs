//! The operator's declarations about the environment of the agent. The gateway shows them to clients, but enforces none of them.

/// Declares an enum of words. The first word is the default.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $first:ident = $first_word:literal, $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum $name {
            #[default]
            $first,
            $($variant),*
        }

        impl $name {
            pub const ALL: &'static [Self] = &[Self::$first, $(Self::$variant),*];

            /// The value as it is written in settings and documents.
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_word,
                    $(Self::$variant => $word),*
                }
            }

            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }
    };
}

words!(
    /// `A2A_SANDBOX_MODE`.
    SandboxMode {
        Unknown = "unknown",
        ReadOnly = "read-only",
        WorkspaceWrite = "workspace-write",
        DangerFullAccess = "danger-full-access",
        Custom = "custom",
    }
);
words!(
    /// `A2A_SANDBOX_FILESYSTEM_SCOPE`.
    FilesystemScope {
        Unknown = "unknown",
        WorkspaceOnly = "workspace_only",
        WorkspaceAndDeclaredRoots = "workspace_and_declared_roots",
        Unrestricted = "unrestricted",
        Custom = "custom",
    }
);
words!(
    /// `A2A_NETWORK_ACCESS`.
    NetworkAccess {
        Unknown = "unknown",
        Disabled = "disabled",
        Enabled = "enabled",
        Restricted = "restricted",
        Custom = "custom",
    }
);
words!(
    /// `A2A_APPROVAL_POLICY`.
    ApprovalPolicy {
        Unknown = "unknown",
        Never = "never",
        OnRequest = "on-request",
        OnFailure = "on-failure",
        Untrusted = "untrusted",
        Custom = "custom",
    }
);
words!(
    /// `A2A_APPROVAL_ESCALATION_BEHAVIOR`.
    EscalationBehavior {
        Unknown = "unknown",
        Manual = "manual",
        Automatic = "automatic",
        Unsupported = "unsupported",
        Custom = "custom",
    }
);
words!(
    /// `A2A_WRITE_ACCESS_SCOPE`.
    WriteScope {
        Unknown = "unknown",
        None = "none",
        WorkspaceOnly = "workspace_only",
        WorkspaceAndDeclaredRoots = "workspace_and_declared_roots",
        Unrestricted = "unrestricted",
        Custom = "custom",
    }
);
words!(
    /// `A2A_WRITE_ACCESS_OUTSIDE_WORKSPACE`.
    OutsideWorkspace {
        Unknown = "unknown",
        Allowed = "allowed",
        Disallowed = "disallowed",
        Custom = "custom",
    }
);

/// All declarations of the operator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment {
    pub sandbox_mode: SandboxMode,
    pub filesystem_scope: FilesystemScope,
    /// `A2A_SANDBOX_WRITABLE_ROOTS`.
    pub writable_roots: Vec<String>,
    pub network_access: NetworkAccess,
    /// `A2A_NETWORK_ALLOWED_DOMAINS`.
    pub allowed_domains: Vec<String>,
    pub approval_policy: ApprovalPolicy,
    pub escalation_behavior: EscalationBehavior,
    pub write_scope: WriteScope,
    pub outside_workspace: OutsideWorkspace,
}

impl Environment {
    /// Whether the agent cannot write anything. Then every feature that writes is disabled, even if its switch is on.
    pub fn is_read_only(&self) -> bool {
        self.sandbox_mode == SandboxMode::ReadOnly || self.write_scope == WriteScope::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for mode in SandboxMode::ALL {
            assert_eq!(SandboxMode::parse(mode.as_str()), Some(*mode));
        }
        for scope in WriteScope::ALL {
            assert_eq!(WriteScope::parse(scope.as_str()), Some(*scope));
        }
        for word in ["", "Unknown", "readonly", "read_only"] {
            assert_eq!(SandboxMode::parse(word), None, "{word}");
        }
    }
}
