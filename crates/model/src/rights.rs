//! What not everybody may do.

use std::fmt;

use crate::card::AuthScheme;

/// Something that not everybody may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Capability {
    /// Run shell commands in a session, without the agent.
    SessionShell,
    /// Change the agent's projects, workspaces and worktrees.
    WorkspaceMutation,
    /// Take a session of the agent that belongs to nobody.
    SessionClaim,
    /// Run the gateway. Nothing asks for it so far; configurations may name it.
    Operator,
}

impl Capability {
    pub const ALL: [Self; 4] =
        [Self::SessionShell, Self::WorkspaceMutation, Self::SessionClaim, Self::Operator];

    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionShell => "session_shell",
            Self::WorkspaceMutation => "workspace_mutation",
            Self::SessionClaim => "session_claim",
            Self::Operator => "operator",
        }
    }

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

    /// What a credential has that names none. A user with a password is taken for a person at the console, a token and a
    /// key for a program.
    pub fn of_scheme(scheme: AuthScheme) -> Self {
        match scheme {
            AuthScheme::Basic => {
                [Capability::SessionShell, Capability::WorkspaceMutation].into_iter().collect()
            }
            AuthScheme::Bearer | AuthScheme::ApiKey => Self::NONE,
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
