//! Parameters that several methods have.

use super::ids::SESSION;
use super::location::ROUTING;
use crate::methods::{Kind, Param};

pub(super) const SESSION_ID: Param =
    Param::required("session_id", Kind::Id(SESSION), "The session of OpenCode.");

pub(super) const DIRECTORY: Param =
    Param::optional("directory", Kind::Directory, "The directory; the default is the root of the workspace.");

/// The parameter `directory` of methods about one session. It is accepted but has no effect: the directory of the session is used.
pub(super) const SESSION_DIRECTORY: Param = Param::optional(
    "directory",
    Kind::Directory,
    "Checked but ignored: the method works in the directory of the session.",
);

pub(super) const METADATA: Param = Param::optional(
    "metadata",
    Kind::Metadata { routed: Some(&ROUTING) },
    "`opencode.workspace.id` or `opencode.directory` choose the directory; the workspace wins.",
);
