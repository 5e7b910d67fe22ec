//! The body of a prompt.
//!
//! A text file is handed over so that OpenCode shows its name and content to the model as if the model had read it. Other
//! files go along when the model that will answer takes their kind; else the model is told what was sent.

mod manifest;
mod media;
mod order;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_engine::port::{FileSource, Input, InputFile, Session};
use longshore_model::{ModelName, Order, PromptOptions, Result};
use serde::Serialize;
use url::Url;

use self::media::Medium;
use crate::api::Takes;
use crate::catalog::Catalog;
use crate::client::Client;
use crate::disk;

/// The one type that OpenCode shows to a model as text.
const TEXT: &str = "text/plain";

/// For text whose sender gave it no name.
const NAMELESS: &str = "attachment.txt";

/// Makes the bodies of prompts.
#[derive(Debug)]
pub(crate) struct Prompts {
    pub(crate) catalog: Arc<Catalog>,
    /// What a prompt asks for where its sender is silent.
    pub(crate) defaults: PromptOptions,
}

/// What is said in a session, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saying<'a> {
    /// A name of our own making. OpenCode writes into the message of that name, whosever session has it, so no name that
    /// a caller chose gets here.
    pub(crate) prompt: &'a str,
    pub(crate) input: &'a [Input],
    pub(crate) options: &'a PromptOptions,
    /// `None`: the input is all.
    pub(crate) order: Option<&'a Order>,
    /// Nobody is to answer it.
    pub(crate) is_note: bool,
}

impl Prompts {
    /// What `POST /session/{id}/prompt_async` takes, or `…/command` if it is one, as JSON text. Asks OpenCode only about files
    /// that a model may or may not take, and mostly knows the answer already. Fails only where it could not be asked.
    pub(crate) async fn body(
        &self,
        client: &Client,
        session: &Session,
        saying: Saying<'_>,
    ) -> Result<String> {
        let options = &saying.options.or(&self.defaults);
        let in_question = |input: &Input| matches!(input, Input::File(file) if Medium::of(file).is_some());
        let takes = if saying.input.iter().any(in_question) {
            self.catalog.takes(client, session, options).await?
        } else {
            Takes::default()
        };
        let saying = Saying { options, ..saying };
        Ok(body(Path::new(&session.directory), saying, takes).await)
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
    /// Always `false`: OpenCode keeps it for the session, and `true` would lift what its operator forbids.
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

impl<'a> Model<'a> {
    fn of(name: &'a ModelName) -> Self {
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

async fn body(directory: &Path, saying: Saying<'_>, takes: Takes) -> String {
    let Saying { prompt, input, options, order, is_note } = saying;
    let mut parts = Vec::with_capacity(input.len());
    // A command says nothing but its name and arguments: its history shows them as text.
    let is_command = matches!(order, Some(Order::Command { .. }));
    for input in input.iter().filter(|input| !is_command || matches!(input, Input::File(_))) {
        parts.push(part(input, directory, takes).await);
    }
    let withheld = match order {
        None => None,
        Some(Order::Prompt { parts: order, withheld }) => {
            parts = order::arranged(order, parts);
            Some(withheld)
        }
        Some(Order::Command { name, arguments }) => {
            return order::command(prompt, name, arguments, parts, options);
        }
    };
    let body = Body {
        message: prompt,
        parts,
        agent: options.agent.as_deref(),
        model: options.model.as_ref().map(Model::of),
        variant: options.variant.as_deref(),
        system: options.system.as_deref(),
        tools: withheld.into_iter().flatten().map(|tool| (tool.as_str(), false)).collect(),
        is_note,
    };
    serde_json::to_string(&body).expect("texts are JSON")
}

async fn part<'a>(input: &'a Input, directory: &Path, takes: Takes) -> PromptPart<'a> {
    let file = match input {
        Input::Text(text) => return PromptPart::Text { text: text.as_str().into() },
        Input::File(file) => file,
    };
    let attached = if file.is_text { attached_text(file).await } else { attached_medium(file, takes).await };
    attached.unwrap_or_else(|| PromptPart::Text { text: manifest::of(file, directory).into() })
}

/// `None`: OpenCode could not show it to the model.
async fn attached_text(file: &InputFile) -> Option<PromptPart<'_>> {
    let url = match &file.source {
        FileSource::Workspace(path) if text::is_taken_for_binary(path).await => {
            data(TEXT, &text::whole(path, file.content.as_ref()?).await?)
        }
        _ => url(TEXT, &file.source)?,
    };
    let name = manifest::name(file).unwrap_or_else(|| NAMELESS.to_owned());
    Some(PromptPart::File { mime: TEXT, url, filename: Some(name) })
}

/// `None`: the model could not make use of it, or OpenCode not send it.
async fn attached_medium(file: &InputFile, takes: Takes) -> Option<PromptPart<'_>> {
    let medium = Medium::of(file)?;
    let goes = match &file.source {
        FileSource::Inline(bytes) => medium.goes(takes, bytes),
        FileSource::Workspace(path) => medium.goes(takes, &head(path, media::HEAD).await?),
        FileSource::Remote(_) => false,
    };
    let url = url(medium.name(), &file.source).filter(|_| goes)?;
    Some(PromptPart::File { mime: medium.name(), url, filename: manifest::name(file) })
}

fn url(mime: &str, source: &FileSource) -> Option<String> {
    match source {
        FileSource::Inline(bytes) => Some(data(mime, bytes)),
        FileSource::Workspace(path) => Url::from_file_path(path).ok().map(Into::into),
        // OpenCode shows nothing of a remote text, and a remote picture makes the prompt fail.
        FileSource::Remote(_) => None,
    }
}

fn data(mime: &str, bytes: &[u8]) -> String {
    format!("data:{mime};base64,{}", STANDARD.encode(bytes))
}

/// The first bytes of a file that the intake found in the workspace.
async fn head(path: &Path, bytes: usize) -> Option<Vec<u8>> {
    let (directory, name) = (path.parent()?.to_owned(), path.file_name()?.into());
    disk::read(directory, name, bytes as u64).await.ok()
}

#[cfg(test)]
mod tests;
