//! Capabilities: rights that certain operations require.

use std::fmt;

use crate::card::AuthScheme;
use crate::named_enum::named_enum;

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Capability {
        /// Run shell commands in a session, without the agent.
        SessionShell = "session_shell",
        /// Change the agent's projects, workspaces and worktrees.
        WorkspaceMutation = "workspace_mutation",
        /// Claim an unowned session of the agent.
        SessionClaim = "session_claim",
        /// Publish a session.
        SessionShare = "session_share",
        /// Delete a session.
        SessionDelete = "session_delete",
        /// Operate the gateway. Nothing checks this capability yet, but configurations may name it.
        Operator = "operator",
    }
    /// The name in the configuration.
    fn as_str
}

impl Capability {
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.as_str() == word)
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(u8);

impl Capabilities {
    pub const NONE: Self = Self(0);

    pub fn all() -> Self {
        Capability::ALL.into_iter().collect()
    }

    /// The capabilities of a credential for which none are configured. A user with a password counts as a person at the console; a
    /// token, a key or a certificate counts as a program.
    pub fn default_for_scheme(scheme: AuthScheme) -> Self {
        match scheme {
            AuthScheme::Basic => {
                [Capability::SessionShell, Capability::WorkspaceMutation].into_iter().collect()
            }
            AuthScheme::Bearer | AuthScheme::ApiKey | AuthScheme::MutualTls => Self::NONE,
        }
    }

    pub fn contains(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Self(capabilities.into_iter().fold(0, |bits, capability| bits | capability.bit()))
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = Capability::ALL.into_iter().filter(|capability| self.contains(*capability));
        f.debug_set().entries(held).finish()
    }
}
