//! The parameters of OpenCode's extensions in the extended card.

pub(super) mod offers;
pub(super) mod providers;
pub(super) mod sessions;
pub(super) mod workspaces;
