//! Checks the parts of a message and converts them into the agent's input.
//!
//! The same check runs twice: before the gateway stores anything, and again when the turn begins, which may be much later.
//! Checks that need no file come first, so that most refusals read no file.

mod data_url;
mod draft;
pub(crate) mod envelope;
mod file_url;
mod media_type;
mod percent;
mod refusal;
mod remote;

use std::path::Path;

use longshore_model::{Error, Part, Result};
use sha2::{Digest as _, Sha256};

use crate::config::IntakeRules;
use crate::port::{ContentFacts, FileSource, Input, InputFile};
use crate::workspace_files::{AllowedDirectories, ReadError};

use draft::{Draft, FileDraft, plain_name};
use media_type::{FileKind, MediaType};
pub(crate) use refusal::size;

/// The most parts that a message may have. A message with more parts is refused.
const MAX_PARTS: usize = 100;

/// The total size of all parts may be this many times the largest allowed part, and the total size of all workspace files
/// that the message refers to this many times the largest allowed file. A larger message is refused, because reading a hundred
/// of the largest files would take long.
const TOTAL_FACTOR: u64 = 4;

/// Checks the parts and converts them into the agent's input. `directory` is the directory of the context. Files may be read
/// from that directory and from the workspace's root.
pub(crate) async fn prepare(rules: &IntakeRules, directory: &Path, parts: &[Part]) -> Result<Vec<Input>> {
    prepare_named(rules, directory, parts, PartNames::MESSAGE).await
}

/// Like [`prepare`], for parts that the caller's request calls by another name.
pub(crate) async fn prepare_named(
    rules: &IntakeRules,
    directory: &Path,
    parts: &[Part],
    names: PartNames<'_>,
) -> Result<Vec<Input>> {
    let drafts = draft_all(rules, parts, names)?;
    let list = names.list;
    if drafts.iter().all(|draft| matches!(draft, Draft::Ready(_))) {
        return finish_all(rules, directory, drafts, list);
    }
    // Runs on a blocking thread, because reading and hashing take time that must not block other requests.
    let (rules, directory) = (rules.clone(), directory.to_owned());
    tokio::task::spawn_blocking(move || finish_all(&rules, &directory, drafts, list))
        .await
        .map_err(Error::internal)?
}

/// The names of the parts in the caller's request, for error messages.
#[derive(Clone, Copy)]
pub(crate) struct PartNames<'a> {
    pub(crate) list: &'static str,
    /// The position of each part in the caller's list. `None`: the parts are the whole list.
    pub(crate) indices: Option<&'a [usize]>,
}

impl PartNames<'_> {
    pub(crate) const MESSAGE: Self = Self { list: "message.parts", indices: None };

    fn field(self, index: usize) -> String {
        let index = self.indices.and_then(|indices| indices.get(index)).unwrap_or(&index);
        format!("{}[{index}]", self.list)
    }
}

fn draft_all(rules: &IntakeRules, parts: &[Part], names: PartNames<'_>) -> Result<Vec<Draft>> {
    if parts.len() > MAX_PARTS {
        let text = format!("holds {} parts, and at most {MAX_PARTS} are taken; send fewer", parts.len());
        return Err(Error::invalid(names.list, text));
    }
    let most = rules.max_inline_bytes.max(rules.max_text_bytes).saturating_mul(TOTAL_FACTOR);
    let mut whole = 0_u64;
    let mut drafts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let Some(draft) = draft::draft(rules, names.field(index), part)? else { continue };
        whole = whole.saturating_add(match &draft {
            Draft::Ready(Input::Text(text)) => text.len() as u64,
            Draft::Inline { bytes, .. } => bytes.len() as u64,
            Draft::Ready(Input::File(_)) | Draft::File(_) => 0,
        });
        if whole > most {
            let text = format!(
                "holds more than {}, the most that a message may bring; send less at once, or put files in the \
                 workspace and send their file:// URLs",
                size(most)
            );
            return Err(Error::invalid(names.list, text));
        }
        drafts.push(draft);
    }
    if drafts.is_empty() {
        return Err(Error::invalid(names.list, "holds nothing to work on"));
    }
    Ok(drafts)
}

/// Does the slow part of the work: reads the files, and hashes the files and the inline content.
fn finish_all(rules: &IntakeRules, directory: &Path, drafts: Vec<Draft>, list: &str) -> Result<Vec<Input>> {
    let most = rules.max_file_bytes.max(rules.max_text_bytes).saturating_mul(TOTAL_FACTOR);
    let mut whole = 0_u64;
    let mut inputs = Vec::with_capacity(drafts.len());
    for draft in drafts {
        inputs.push(match draft {
            Draft::Ready(input) => input,
            Draft::Inline { name, media_type, is_text, bytes } => {
                let content =
                    Some(ContentFacts { bytes: bytes.len() as u64, sha256: Sha256::digest(&bytes).into() });
                Input::File(InputFile { name, media_type, is_text, source: FileSource::Inline(bytes), content })
            }
            Draft::File(draft) => {
                let file = read_file(rules, directory, draft)?;
                whole = whole.saturating_add(file.content.map_or(0, |content| content.bytes));
                if whole > most {
                    let text = format!(
                        "refers to files of more than {} together, the most for one message; send less at once",
                        size(most)
                    );
                    return Err(Error::invalid(list, text));
                }
                Input::File(file)
            }
        });
    }
    Ok(inputs)
}

fn read_file(rules: &IntakeRules, directory: &Path, draft: FileDraft) -> Result<InputFile> {
    let FileDraft { field, path, name, claimed } = draft;
    let found = AllowedDirectories::resolve(&[&rules.root, directory])
        .open(&path, &rules.protected)
        .map_err(|error| refusal::not_readable(&field).caused_by(error))?;
    let resolved = found.path.clone();
    let own_name = path.file_name().and_then(|name| plain_name(&name.to_string_lossy()));

    // A type that only the file name suggests is no claim of the caller, so a wrong one is no reason to refuse the file.
    let suggested = || {
        let media_type = MediaType::of(media_type::by_name(own_name.as_deref()?)?);
        let kind = media_type.kind(rules)?;
        Some((media_type, kind))
    };
    let known = claimed.or_else(suggested);
    let kind = known.as_ref().map(|(_, kind)| *kind);
    let limit = match kind {
        Some(FileKind::Text) => rules.max_text_bytes,
        Some(FileKind::Media) => rules.max_file_bytes,
        None => rules.max_file_bytes.max(rules.max_text_bytes),
    };
    let keep = if kind == Some(FileKind::Media) { 0 } else { rules.max_text_bytes };
    let too_large = || match kind {
        Some(FileKind::Text) => refusal::text_too_large(&field, rules),
        _ => refusal::file_too_large(&field, rules),
    };
    let content = found.read_whole(limit, keep).map_err(|error| match error {
        ReadError::TooLarge => too_large(),
        ReadError::Failed(error) => refusal::not_readable(&field).caused_by(error),
    })?;

    let is_utf8 = content.kept.as_deref().is_some_and(|kept| str::from_utf8(kept).is_ok());
    let (media_type, is_text) = match known {
        Some((_, FileKind::Text)) if !is_utf8 => return Err(refusal::not_utf8(&field)),
        Some((media_type, kind)) => (media_type.essence, kind == FileKind::Text),
        // Content with zero bytes can be valid UTF-8, but is no text.
        None if is_utf8 && content.kept.is_some_and(|kept| !kept.contains(&0)) => {
            (media_type::PLAIN_TEXT.to_owned(), true)
        }
        None if content.facts.bytes > rules.max_file_bytes => {
            return Err(refusal::file_too_large(&field, rules));
        }
        None => (media_type::BYTES.to_owned(), false),
    };
    Ok(InputFile {
        name: name.or(own_name),
        media_type,
        is_text,
        source: FileSource::Workspace(resolved),
        content: Some(content.facts),
    })
}

#[cfg(test)]
mod tests;
