//! The content of a prompt: each input becomes a block of a kind that the agent accepts, or otherwise a description of the file.
//!
//! Every agent accepts text and links. The rest depends on the agent's capabilities.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_engine::manifest;
use longshore_engine::port::{FileSource, Input, InputFile};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use url::Url;

use crate::schema::PromptCapabilities;

/// The image types that models can read.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// One block of a prompt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptBlock {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        mime_type: String,
        data: String,
    },
    #[serde(rename_all = "camelCase")]
    Audio {
        mime_type: String,
        data: String,
    },
    Resource {
        resource: EmbeddedResource,
    },
    #[serde(rename_all = "camelCase")]
    ResourceLink {
        uri: String,
        name: String,
        mime_type: String,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedResource {
    pub uri: String,
    pub mime_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// The workspace files whose bytes the prompt contains. The caller reads them for [`blocks`], which does no IO. The agent itself
/// reads the other workspace files.
pub fn needed_files<'a>(inputs: &'a [Input], takes: PromptCapabilities) -> Vec<&'a Path> {
    let needed = |input: &'a Input| match input {
        Input::File(InputFile { source: FileSource::Workspace(path), media_type, .. }) => {
            is_shown(media_type, takes).then_some(path.as_path())
        }
        Input::File(_) | Input::Text(_) => None,
    };
    inputs.iter().filter_map(needed).collect()
}

/// The approximate number of bytes of the blocks with text and files.
pub fn size(inputs: &[Input], takes: PromptCapabilities) -> usize {
    let encoded = |bytes: usize| bytes / 3 * 4;
    let size = |input: &Input| match input {
        Input::Text(text) => text.len(),
        Input::File(InputFile { source: FileSource::Inline(bytes), .. }) => encoded(bytes.len()),
        Input::File(InputFile {
            source: FileSource::Workspace(_), content: Some(facts), media_type, ..
        }) if is_shown(media_type, takes) => encoded(usize::try_from(facts.bytes).unwrap_or(usize::MAX)),
        Input::File(_) => 0,
    };
    inputs.iter().map(size).sum()
}

/// Builds the content blocks of a prompt. `read`: the content of the files that [`needed_files`] returned. A file that is missing
/// there could not be read, and the prompt describes it by its name and type.
pub fn blocks(
    inputs: &[Input],
    directory: &Path,
    takes: PromptCapabilities,
    read: &BTreeMap<PathBuf, Vec<u8>>,
) -> Vec<PromptBlock> {
    let block = |input: &Input| match input {
        Input::Text(text) => PromptBlock::Text { text: text.clone() },
        Input::File(file) => attach(file, takes, read)
            .unwrap_or_else(|| PromptBlock::Text { text: manifest::describe(file, directory) }),
    };
    inputs.iter().map(block).collect()
}

/// Whether the prompt contains the bytes of a file of this type.
fn is_shown(media_type: &str, takes: PromptCapabilities) -> bool {
    takes.image && IMAGES.contains(&media_type) || takes.audio && media_type.starts_with("audio/")
}

/// The block of a file. `None`: the agent does not accept the file.
fn attach(
    file: &InputFile,
    takes: PromptCapabilities,
    read: &BTreeMap<PathBuf, Vec<u8>>,
) -> Option<PromptBlock> {
    let mime_type = file.media_type.clone();
    let name = manifest::name(file).unwrap_or_else(|| "attachment".to_owned());
    let bytes = match &file.source {
        FileSource::Inline(bytes) => Some(bytes),
        FileSource::Workspace(path) => read.get(path),
        FileSource::Remote(_) => None,
    };
    if let (true, Some(bytes)) = (is_shown(&mime_type, takes), bytes) {
        let data = STANDARD.encode(bytes);
        let is_image = mime_type.starts_with("image/");
        return Some(if is_image {
            PromptBlock::Image { mime_type, data }
        } else {
            PromptBlock::Audio { mime_type, data }
        });
    }
    match &file.source {
        FileSource::Workspace(path) if !is_shown(&mime_type, takes) => {
            let uri = Url::from_file_path(path).ok()?.into();
            Some(PromptBlock::ResourceLink { uri, name, mime_type })
        }
        FileSource::Remote(url) => Some(PromptBlock::ResourceLink { uri: url.clone(), name, mime_type }),
        FileSource::Inline(bytes) if takes.embedded_context => {
            // Not a path, because the agent must not look for the file on the disk.
            let uri = format!("attachment:{}", utf8_percent_encode(&name, NON_ALPHANUMERIC));
            let text = std::str::from_utf8(bytes).ok().filter(|_| file.is_text).map(str::to_owned);
            let blob = text.is_none().then(|| STANDARD.encode(bytes));
            Some(PromptBlock::Resource { resource: EmbeddedResource { uri, mime_type, text, blob } })
        }
        FileSource::Workspace(_) | FileSource::Inline(_) => None,
    }
}

#[cfg(test)]
mod tests;
