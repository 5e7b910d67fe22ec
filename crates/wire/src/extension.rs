//! The supported extensions of A2A: their URIs, and which of them a caller has activated.
//!
//! Both versions of A2A use the same extensions under different URIs. The gateway accepts every URI that was ever in use. A
//! response contains the URI that the caller used, and an error contains the URI of 1.0. A card contains the URIs of its own
//! versions.

use std::borrow::Cow;
use std::fmt;

use longshore_model::{Error, ErrorKind, Result};

use crate::json::text_of_list;

mod declaration;
mod uri;

use uri::{DOCUMENT, Row, TABLE};

pub(crate) use declaration::{as_of_v03, declared_for};
pub use declaration::{declared_exposure, mark_required};

/// The header in which a request names the extensions that it activates, and a response names the active ones.
pub const HEADER: &str = "A2A-Extensions";

/// The name of [`HEADER`] in 0.3.
pub const HEADER_V03: &str = "X-A2A-Extensions";

/// An extension. The variants are in the order of the card.
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

impl Extension {
    /// The extensions of every public card.
    pub const PUBLIC: [Self; 4] =
        [Self::SessionBinding, Self::ModelSelection, Self::StreamHints, Self::InteractiveInterrupt];

    /// The URI in 1.0.
    pub fn uri(self) -> &'static str {
        TABLE[self as usize].uri
    }

    /// The URI in 0.3. An extension that never existed in 0.3 has the URI of 1.0.
    pub fn uri_v03(self) -> Cow<'static, str> {
        match TABLE[self as usize].fragments.first() {
            Some(fragment) => Cow::Owned(format!("{DOCUMENT}{fragment}")),
            None => Cow::Borrowed(self.uri()),
        }
    }

    /// The extension with this URI of any version. `None`: the URI is unknown.
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

    /// All extensions. In 0.3 they are always active, because a 0.3 client does not have to request them.
    pub const ALL: Self = Self((1 << TABLE.len()) - 1);

    /// The extensions whose fields are in every 0.3 response. Those of `iac-code` are not among them: `iac-code` has never served
    /// 0.3, so no 0.3 client knows `metadata.iac_code`.
    pub(crate) const SHOWN_IN_V03: Self = Self(
        Self::ALL.0 & !(1 << Extension::ThinkingExposure as u8 | 1 << Extension::ArtifactMetadata as u8),
    );

    /// Parses the values of the header: comma-separated lists, in any number of headers. Ignores unknown extensions, as the
    /// specification demands.
    pub fn from_header<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        named(values).map(|(extension, _)| extension).collect()
    }

    /// The value of the response header, in the order of the card. `requested`: the values of the request header; each extension
    /// gets the URI that the caller used first. `None`: no extension is active.
    pub fn to_header<'a>(self, requested: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let requested: Vec<(Extension, &str)> = named(requested).collect();
        let name = |extension: Extension| {
            requested.iter().find(|(named, _)| *named == extension).map_or(extension.uri(), |(_, uri)| uri)
        };
        let uris: Vec<&str> = self.iter().map(name).collect();
        (!uris.is_empty()).then(|| uris.join(","))
    }

    pub fn contains(self, extension: Extension) -> bool {
        self.0 & extension.bit() != 0
    }

    /// The extensions that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the caller sees `metadata.shared.session`.
    pub fn shows_session(self) -> bool {
        self.contains(Extension::SessionBinding)
    }

    /// Whether the caller sees `metadata.shared.stream`, `.progress`, `.usage` and `.parent`.
    pub fn shows_stream(self) -> bool {
        self.contains(Extension::StreamHints)
    }

    /// Whether the caller sees `metadata.shared.interrupt`.
    pub fn shows_interrupt(self) -> bool {
        self.contains(Extension::InteractiveInterrupt)
    }

    /// Whether the caller sees `metadata.iac_code.tool`, `.permission` and `.usage`.
    pub fn shows_tool_details(self) -> bool {
        self.contains(Extension::ArtifactMetadata)
    }

    /// Whether the caller sees `metadata.iac_code.thinking`.
    pub fn shows_thinking_details(self) -> bool {
        self.contains(Extension::ThinkingExposure)
    }

    /// The URIs in 1.0.
    pub fn uris(self) -> impl Iterator<Item = &'static str> {
        self.iter().map(Extension::uri)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Extension> {
        TABLE.iter().map(|row| row.extension).filter(move |extension| self.contains(*extension))
    }
}

/// The extensions in values of the header, each with the URI that the header contains.
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

/// Which internals of an agent a client may see. All others never leave the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Exposure {
    /// The agent's reasoning.
    pub raw_thinking: bool,
    /// The agent's tool calls, with their inputs and outputs.
    pub tool_trace: bool,
}

impl Exposure {
    /// The internals that both settings permit.
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

/// Fails if a caller has not activated all extensions that this gateway requires.
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

/// Adds the missing and the activated extensions to an error, as machine-readable details.
pub(crate) fn naming(error: Error, missing: &[Extension], activated: Activated) -> Error {
    let uris = missing.iter().map(|extension| extension.uri());
    error
        .detail("requiredExtensions", text_of_list(uris))
        .detail("requestedExtensions", text_of_list(activated.iter().map(Extension::uri)))
        .detail("header", HEADER)
}

/// The extensions as a value of the header.
pub(crate) fn listed(extensions: &[Extension]) -> String {
    extensions.iter().map(|extension| extension.uri()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub(crate) mod tests;
