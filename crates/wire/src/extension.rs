//! The extensions of A2A that are spoken here: their URIs, and which of them a caller has activated.
//!
//! Both versions of A2A use the same extensions under different URIs. Every URI that was ever in use is understood; answers
//! name the one that the caller used, errors the one of the 1.0 version, the card those of the versions that it is for.

use std::borrow::Cow;
use std::fmt;

use longshore_model::{Error, ErrorKind, Result};

use crate::json::text_of_list;

mod declaration;

pub(crate) use declaration::as_of_v03;
pub use declaration::{declared, declared_exposure, mark_required};

/// The header in which a caller names the extensions that it wants, and an answer those that it got.
pub const HEADER: &str = "A2A-Extensions";

/// What callers of the 0.3 version call it.
pub const OLD_HEADER: &str = "X-A2A-Extensions";

/// An extension. The order is that of the card.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Extension {
    SessionBinding,
    ModelSelection,
    StreamHints,
    InteractiveInterrupt,
    SessionManagement,
    ProviderDiscovery,
    WorkspaceControl,
    InterruptRecovery,
    CompatibilityProfile,
    WireContract,
    ThinkingExposure,
    ArtifactMetadata,
}

/// The URIs of one extension.
struct Row {
    extension: Extension,
    uri: &'static str,
    /// Behind [`DOCUMENT`].
    fragments: &'static [&'static str],
    /// Before there was a document.
    oldest: Option<&'static str>,
}

/// Where the 0.3 version documents its extensions.
const DOCUMENT: &str =
    "https://github.com/Intelligent-Internet/opencode-a2a/blob/main/docs/extension-specifications.md";

const TABLE: [Row; 12] = [
    Row {
        extension: Extension::SessionBinding,
        uri: "urn:opencode-a2a:extension:session-binding:v1",
        fragments: &["#shared-session-binding-v1"],
        oldest: Some("urn:a2a:session-binding"),
    },
    Row {
        extension: Extension::ModelSelection,
        uri: "urn:opencode-a2a:extension:model-selection:v1",
        fragments: &["#shared-model-selection-v1"],
        oldest: Some("urn:a2a:model-selection"),
    },
    Row {
        extension: Extension::StreamHints,
        uri: "urn:opencode-a2a:extension:stream-hints:v1",
        fragments: &["#shared-stream-hints-v1"],
        oldest: Some("urn:a2a:stream-hints"),
    },
    Row {
        extension: Extension::InteractiveInterrupt,
        uri: "urn:opencode-a2a:extension:interactive-interrupt:v1",
        fragments: &["#shared-interactive-interrupt-v1"],
        oldest: Some("urn:a2a:interactive-interrupt"),
    },
    Row {
        extension: Extension::SessionManagement,
        uri: "urn:opencode-a2a:extension:session-management:v1",
        fragments: &["#opencode-session-management-v1", "#opencode-session-query-v1"],
        oldest: Some("urn:opencode-a2a:session-query"),
    },
    Row {
        extension: Extension::ProviderDiscovery,
        uri: "urn:opencode-a2a:extension:provider-discovery:v1",
        fragments: &["#opencode-provider-discovery-v1"],
        oldest: Some("urn:opencode-a2a:provider-discovery"),
    },
    Row {
        extension: Extension::WorkspaceControl,
        uri: "urn:opencode-a2a:extension:workspace-control:v1",
        fragments: &["#opencode-workspace-control-v1"],
        oldest: None,
    },
    Row {
        extension: Extension::InterruptRecovery,
        uri: "urn:opencode-a2a:extension:interrupt-recovery:v1",
        fragments: &["#opencode-interrupt-recovery-v1"],
        oldest: None,
    },
    Row {
        extension: Extension::CompatibilityProfile,
        uri: "urn:opencode-a2a:extension:compatibility-profile:v1",
        fragments: &["#a2a-compatibility-profile-v1"],
        oldest: Some("urn:a2a:compatibility-profile"),
    },
    Row {
        extension: Extension::WireContract,
        uri: "urn:opencode-a2a:extension:wire-contract:v1",
        fragments: &["#a2a-wire-contract-v1"],
        oldest: Some("urn:a2a:wire-contract"),
    },
    Row {
        extension: Extension::ThinkingExposure,
        uri: "urn:iac-code:a2a:thinking-exposure:v1",
        fragments: &[],
        oldest: None,
    },
    Row {
        extension: Extension::ArtifactMetadata,
        uri: "urn:iac-code:a2a:artifact-metadata:v1",
        fragments: &[],
        oldest: None,
    },
];

impl Extension {
    /// Those that every public card has: what is served to everybody.
    pub const PUBLIC: [Self; 4] =
        [Self::SessionBinding, Self::ModelSelection, Self::StreamHints, Self::InteractiveInterrupt];

    /// The URI of the 1.0 version.
    pub fn uri(self) -> &'static str {
        TABLE[self as usize].uri
    }

    /// The URI of the 0.3 version. What that version never had goes by the same name on both.
    pub fn uri_v03(self) -> Cow<'static, str> {
        match TABLE[self as usize].fragments.first() {
            Some(fragment) => Cow::Owned(format!("{DOCUMENT}{fragment}")),
            None => Cow::Borrowed(self.uri()),
        }
    }

    /// The extension of a URI of any line.
    pub fn parse(uri: &str) -> Option<Self> {
        let fragment = uri.strip_prefix(DOCUMENT);
        let is_named = |row: &&Row| {
            row.uri == uri
                || row.oldest == Some(uri)
                || fragment.is_some_and(|fragment| row.fragments.contains(&fragment))
        };
        TABLE.iter().find(is_named).map(|row| row.extension)
    }

    fn bit(self) -> u16 {
        1 << (self as u8)
    }
}

/// The extensions that one caller has activated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Activated(u16);

impl Activated {
    pub const NONE: Self = Self(0);

    /// As on the 0.3 version, where nobody has to ask.
    pub const ALL: Self = Self((1 << TABLE.len()) - 1);

    /// From the values of the header: lists with commas, in as many headers as the caller likes. What is unknown is
    /// ignored, as the specification asks.
    pub fn of_header<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        named(values).map(|(extension, _)| extension).collect()
    }

    /// As a value of the header, in the order of the card, each by the name that the caller used first in these values of
    /// the same header. `None`: there is nothing to say.
    pub fn to_header<'a>(self, asked: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let asked: Vec<(Extension, &str)> = named(asked).collect();
        let name = |extension: Extension| {
            asked.iter().find(|(named, _)| *named == extension).map_or(extension.uri(), |(_, uri)| uri)
        };
        let uris: Vec<&str> = self.iter().map(name).collect();
        (!uris.is_empty()).then(|| uris.join(","))
    }

    pub fn contains(self, extension: Extension) -> bool {
        self.0 & extension.bit() != 0
    }

    /// What both have.
    #[must_use]
    pub fn among(self, extensions: &[Extension]) -> Self {
        Self(self.0 & extensions.iter().copied().collect::<Self>().0)
    }

    /// Shows `metadata.shared.session`.
    pub fn shows_session(self) -> bool {
        self.contains(Extension::SessionBinding)
    }

    /// Shows `metadata.shared.stream`, `.progress`, `.usage` and `.parent`.
    pub fn shows_stream(self) -> bool {
        self.contains(Extension::StreamHints)
    }

    /// Shows `metadata.shared.interrupt`.
    pub fn shows_interrupt(self) -> bool {
        self.contains(Extension::InteractiveInterrupt)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Extension> {
        TABLE.iter().map(|row| row.extension).filter(move |extension| self.contains(*extension))
    }
}

/// The extensions in values of the header, each with its URI there.
fn named<'a>(values: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = (Extension, &'a str)> {
    let uris = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
    uris.filter_map(|uri| Some((Extension::parse(uri)?, uri)))
}

impl FromIterator<Extension> for Activated {
    fn from_iter<I: IntoIterator<Item = Extension>>(extensions: I) -> Self {
        Self(extensions.into_iter().fold(0, |bits, extension| bits | extension.bit()))
    }
}

impl fmt::Debug for Activated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// What of an agent's inner life a reader is shown. What is off never leaves the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Exposure {
    /// Its reasoning.
    pub raw_thinking: bool,
    /// The tools that it calls, with what goes in and comes out.
    pub tool_trace: bool,
}

impl Exposure {
    /// What both let through.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            raw_thinking: self.raw_thinking && other.raw_thinking,
            tool_trace: self.tool_trace && other.tool_trace,
        }
    }
}

impl Default for Exposure {
    fn default() -> Self {
        Self { raw_thinking: true, tool_trace: true }
    }
}

/// Refuses a caller that has not activated all that this gateway requires.
pub fn check_required(activated: Activated, required: &[Extension]) -> Result<()> {
    let missing: Vec<Extension> =
        required.iter().copied().filter(|extension| !activated.contains(*extension)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text =
        format!("This agent requires extensions; send {HEADER}: {} with the request.", listed(&missing));
    Err(naming(Error::new(ErrorKind::ExtensionRequired, text), &missing, activated))
}

/// The error, with the extensions that would have been needed and those that were activated, for machines.
pub(crate) fn naming(error: Error, missing: &[Extension], activated: Activated) -> Error {
    let uris = missing.iter().map(|extension| extension.uri());
    error
        .detail("requiredExtensions", text_of_list(uris))
        .detail("requestedExtensions", text_of_list(activated.iter().map(Extension::uri)))
        .detail("header", HEADER)
}

/// As a value of the header.
pub(crate) fn listed(extensions: &[Extension]) -> String {
    extensions.iter().map(|extension| extension.uri()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
