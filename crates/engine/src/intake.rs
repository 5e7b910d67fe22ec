//! What a message may hold: the parts of a message, checked, and made into what an agent is given.
//!
//! The same check runs twice: before anything is kept or done, and again when the turn begins, which may be much later.
//! What can be said without looking at a file is said first, so that most refusals touch none.

mod data_url;
mod draft;
mod file_url;
mod media_type;
mod percent;
mod refusal;
mod remote;
mod workspace;

use std::path::Path;

use longshore_model::{Error, Part, Result};
use sha2::{Digest as _, Sha256};

use crate::config::IntakeRules;
use crate::port::{ContentFacts, FileSource, Input, InputFile};

use draft::{Draft, FileDraft, plain_name};
use media_type::{MediaType, Sort};
use refusal::size;
use workspace::{Bases, Unread};

/// A message has no more parts than this; one that has is refused.
const MAX_PARTS: usize = 100;

/// All that comes with a message may be so many times the largest single one, and so may all files that it refers to.
/// More is refused: a hundred of the largest files would keep the gateway reading for long.
const WHOLE: u64 = 4;

/// Checks the parts and makes of them what an agent is given. `directory` is where the context works; files may be taken
/// from there and from the workspace's root.
pub(crate) async fn prepare(rules: &IntakeRules, directory: &Path, parts: &[Part]) -> Result<Vec<Input>> {
    prepare_named(rules, directory, parts, Naming::MESSAGE).await
}

/// The same for parts that the caller knows by another name.
pub(crate) async fn prepare_named(
    rules: &IntakeRules,
    directory: &Path,
    parts: &[Part],
    naming: Naming<'_>,
) -> Result<Vec<Input>> {
    let drafts = draft_all(rules, parts, naming)?;
    let list = naming.list;
    if drafts.iter().all(|draft| matches!(draft, Draft::Ready(_))) {
        return finish_all(rules, directory, drafts, list);
    }
    // Reading and hashing take their time, which is not that of other requests.
    let (rules, directory) = (rules.clone(), directory.to_owned());
    tokio::task::spawn_blocking(move || finish_all(&rules, &directory, drafts, list))
        .await
        .map_err(Error::internal)?
}

/// What a caller calls the parts that are looked at.
#[derive(Clone, Copy)]
pub(crate) struct Naming<'a> {
    pub(crate) list: &'static str,
    /// The place of each in the list. `None`: they are all of it.
    pub(crate) places: Option<&'a [usize]>,
}

impl Naming<'_> {
    pub(crate) const MESSAGE: Self = Self { list: "message.parts", places: None };

    fn of(self, index: usize) -> String {
        let place = self.places.and_then(|places| places.get(index)).unwrap_or(&index);
        format!("{}[{place}]", self.list)
    }
}

fn draft_all(rules: &IntakeRules, parts: &[Part], naming: Naming<'_>) -> Result<Vec<Draft>> {
    if parts.len() > MAX_PARTS {
        let text = format!("holds {} parts, and at most {MAX_PARTS} are taken; send fewer", parts.len());
        return Err(Error::invalid(naming.list, text));
    }
    let most = rules.max_inline_bytes.max(rules.max_text_bytes).saturating_mul(WHOLE);
    let mut whole = 0_u64;
    let mut drafts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let Some(draft) = draft::draft(rules, naming.of(index), part)? else { continue };
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
            return Err(Error::invalid(naming.list, text));
        }
        drafts.push(draft);
    }
    if drafts.is_empty() {
        return Err(Error::invalid(naming.list, "holds nothing to work on"));
    }
    Ok(drafts)
}

/// The part of the work that takes time.
fn finish_all(rules: &IntakeRules, directory: &Path, drafts: Vec<Draft>, list: &str) -> Result<Vec<Input>> {
    let most = rules.max_file_bytes.max(rules.max_text_bytes).saturating_mul(WHOLE);
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
    let found = Bases::resolve(&[&rules.root, directory])
        .open(&path)
        .map_err(|error| refusal::not_readable(&field).caused_by(error))?;
    let resolved = found.path.clone();
    let own_name = path.file_name().and_then(|name| plain_name(&name.to_string_lossy()));

    // What a name suggests is no claim of the caller's, so it cannot be a reason to refuse the file.
    let suggested = || {
        let media_type = MediaType::of(media_type::by_name(own_name.as_deref()?)?);
        let sort = media_type.sort(rules)?;
        Some((media_type, sort))
    };
    let known = claimed.or_else(suggested);
    let sort = known.as_ref().map(|(_, sort)| *sort);
    let limit = match sort {
        Some(Sort::Text) => rules.max_text_bytes,
        Some(Sort::Media) => rules.max_file_bytes,
        None => rules.max_file_bytes.max(rules.max_text_bytes),
    };
    let keep = if sort == Some(Sort::Media) { 0 } else { rules.max_text_bytes };
    let too_large = || match sort {
        Some(Sort::Text) => refusal::text_too_large(&field, rules),
        _ => refusal::file_too_large(&field, rules),
    };
    let content = found.read(limit, keep).map_err(|error| match error {
        Unread::TooLarge => too_large(),
        Unread::Failed(error) => refusal::not_readable(&field).caused_by(error),
    })?;

    let is_utf8 = content.kept.as_deref().is_some_and(|kept| str::from_utf8(kept).is_ok());
    let (media_type, is_text) = match known {
        Some((_, Sort::Text)) if !is_utf8 => return Err(refusal::not_utf8(&field)),
        Some((media_type, sort)) => (media_type.essence, sort == Sort::Text),
        // Zeros are UTF-8 too, but no text.
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
