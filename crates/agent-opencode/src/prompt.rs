//! Builds the body of a prompt.
//!
//! A text file is attached in the form in which OpenCode shows its name and content to the model, as if the model had read the
//! file. Any other file is attached if the model that OpenCode will use accepts its kind. Otherwise the model gets a description of
//! it.

mod media;
mod native;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_engine::manifest;
use longshore_engine::port::{FileSource, Input, InputFile, Session};
use longshore_model::{ModelName, NativePrompt, PromptOptions, Result};
use serde::Serialize;
use url::Url;

use self::media::Medium;
use crate::api::FileKinds;
use crate::catalog::{Catalog, Fields};
use crate::client::Client;
use crate::disk;
use crate::id::MessageIds;
use crate::rules::PromptRules;

/// The only media type that OpenCode shows to a model as text.
const TEXT: &str = "text/plain";

/// The name of a text file that has no name.
const NAMELESS: &str = "attachment.txt";

/// Builds the bodies of prompts.
#[derive(Debug)]
pub(crate) struct Prompts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) rules: Arc<PromptRules>,
    pub(crate) ids: MessageIds,
}

/// The content from which the body of a prompt is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptDraft<'a> {
    /// The engine's id, or the id of a message that the gateway made. OpenCode writes into the message with this id, in whichever
    /// session the message is. So this must never be an id from a caller.
    pub(crate) prompt: &'a str,
    pub(crate) input: &'a [Input],
    pub(crate) options: &'a PromptOptions,
    /// The native prompt. `None`: an ordinary prompt, which consists only of the input.
    pub(crate) order: Option<&'a NativePrompt>,
    /// Whether the prompt expects no response.
    pub(crate) is_note: bool,
}

/// The body of a prompt.
#[derive(Debug)]
pub(crate) struct PromptBody {
    pub(crate) json: String,
    /// The arguments in the body of a command. They differ from the caller's if descriptions of files were appended.
    pub(crate) arguments: Option<String>,
}

impl Prompts {
    /// Builds the body for `POST /session/{id}/prompt_async`, or for `…/command` if the prompt is a command. If the prompt has
    /// files that some models do not accept, asks OpenCode what the model accepts; the response is usually cached. Fails if no call
    /// slot is free for that, and for options that the operator does not allow.
    pub(crate) async fn body(
        &self,
        client: &Client,
        session: &Session,
        draft: PromptDraft<'_>,
    ) -> Result<PromptBody> {
        let fields = if draft.order.is_some() { Fields::OF_NATIVE_PROMPT } else { Fields::OF_MESSAGE };
        self.rules.check(draft.options, fields)?;
        let options = &self.rules.apply(draft.options);
        let may_be_rejected =
            |input: &Input| matches!(input, Input::File(file) if Medium::find(file).is_some());
        let accepted = if draft.input.iter().any(may_be_rejected) {
            self.catalog.accepted_files(client, session, options).await?
        } else {
            FileKinds::default()
        };
        let draft = PromptDraft { prompt: &self.ids.of_prompt(draft.prompt), options, ..draft };
        Ok(body(Path::new(&session.directory), draft, accepted).await)
    }
}

#[derive(Serialize, Debug)]
struct Body<'a> {
    #[serde(rename = "messageID")]
    message: &'a str,
    parts: Vec<PromptPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Model<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    /// The disabled tools. The value is always `false`: OpenCode keeps the values for the session, and `true` would allow tools
    /// that OpenCode's operator forbids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tools: BTreeMap<&'a str, bool>,
    #[serde(rename = "noReply", skip_serializing_if = "std::ops::Not::not")]
    is_note: bool,
}

#[derive(Serialize, Debug)]
struct Model<'a> {
    #[serde(rename = "providerID")]
    provider: &'a str,
    #[serde(rename = "modelID")]
    model: &'a str,
}

impl<'a> From<&'a ModelName> for Model<'a> {
    fn from(name: &'a ModelName) -> Self {
        Self { provider: &name.provider, model: &name.model }
    }
}

#[derive(Serialize, Debug)]
#[serde(tag = "type", rename_all = "lowercase")]
enum PromptPart<'a> {
    Text {
        text: Cow<'a, str>,
    },
    File {
        mime: &'a str,
        url: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    Agent {
        name: &'a str,
    },
    Subtask {
        prompt: &'a str,
        description: &'a str,
        agent: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<Model<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<&'a str>,
    },
}

async fn body(directory: &Path, draft: PromptDraft<'_>, accepted: FileKinds) -> PromptBody {
    let PromptDraft { prompt, input, options, order: native, is_note } = draft;
    let mut parts = Vec::with_capacity(input.len());
    // A command has no texts apart from its name and arguments. The text inputs only repeat these for the history.
    let is_command = matches!(native, Some(NativePrompt::Command { .. }));
    for input in input.iter().filter(|input| !is_command || matches!(input, Input::File(_))) {
        parts.push(part(input, directory, accepted).await);
    }
    let withheld = match native {
        None => None,
        Some(NativePrompt::Prompt { parts: native, withheld }) => {
            parts = native::arrange(native, parts);
            Some(withheld)
        }
        Some(NativePrompt::Command { name, arguments, .. }) => {
            return native::command(prompt, name, arguments, parts, options);
        }
    };
    let body = Body {
        message: prompt,
        parts,
        agent: options.agent.as_deref(),
        model: options.model.as_ref().map(Model::from),
        variant: options.variant.as_deref(),
        system: options.system.as_deref(),
        tools: withheld.into_iter().flatten().map(|tool| (tool.as_str(), false)).collect(),
        is_note,
    };
    PromptBody { json: serde_json::to_string(&body).expect("strings serialize to JSON"), arguments: None }
}

async fn part<'a>(input: &'a Input, directory: &Path, accepted: FileKinds) -> PromptPart<'a> {
    let file = match input {
        Input::Text(text) => return PromptPart::Text { text: text.as_str().into() },
        Input::File(file) => file,
    };
    let attached = if file.is_text { attach_text(file).await } else { attach_medium(file, accepted).await };
    attached.unwrap_or_else(|| PromptPart::Text { text: manifest::describe(file, directory).into() })
}

/// Attaches a text file. `None`: OpenCode could not show the file to the model.
async fn attach_text(file: &InputFile) -> Option<PromptPart<'_>> {
    let url = match &file.source {
        FileSource::Workspace(path) if text::looks_binary(path).await => {
            data_url(TEXT, &text::unchanged_content(path, file.content.as_ref()?).await?)
        }
        _ => url(TEXT, &file.source)?,
    };
    let name = manifest::name(file).unwrap_or_else(|| NAMELESS.to_owned());
    Some(PromptPart::File { mime: TEXT, url, filename: Some(name) })
}

/// Attaches a file that is not text. `None`: the model does not accept the file, or OpenCode cannot send it.
async fn attach_medium(file: &InputFile, accepted: FileKinds) -> Option<PromptPart<'_>> {
    let medium = Medium::find(file)?;
    let is_accepted = match &file.source {
        FileSource::Inline(bytes) => medium.accepts(accepted, bytes),
        FileSource::Workspace(path) => medium.accepts(accepted, &head(path, media::HEAD).await?),
        FileSource::Remote(_) => false,
    };
    let url = url(medium.name(), &file.source).filter(|_| is_accepted)?;
    Some(PromptPart::File { mime: medium.name(), url, filename: manifest::name(file) })
}

fn url(mime: &str, source: &FileSource) -> Option<String> {
    match source {
        FileSource::Inline(bytes) => Some(data_url(mime, bytes)),
        FileSource::Workspace(path) => Url::from_file_path(path).ok().map(Into::into),
        // OpenCode ignores a remote text file, and a remote image makes the prompt fail.
        FileSource::Remote(_) => None,
    }
}

fn data_url(mime: &str, bytes: &[u8]) -> String {
    format!("data:{mime};base64,{}", STANDARD.encode(bytes))
}

/// The first bytes of a file in the workspace.
async fn head(path: &Path, bytes: usize) -> Option<Vec<u8>> {
    let (directory, name) = (path.parent()?.to_owned(), path.file_name()?.into());
    disk::read(directory, name, bytes as u64).await.ok()
}

#[cfg(test)]
mod tests;
