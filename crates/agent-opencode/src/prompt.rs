//! The body of a prompt.
//!
//! A text file is handed over so that OpenCode shows its name and content to the model as if the model had read it. Other
//! files go along when the model that will answer takes their kind; else the model is told what was sent.

mod manifest;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_engine::port::{FileSource, Input, InputFile, Session};
use longshore_model::PromptOptions;
use serde::Serialize;
use url::Url;

use crate::api::Takes;
use crate::catalog::Catalog;

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

impl Prompts {
    /// What `POST /session/{id}/prompt_async` takes, as JSON text. Asks OpenCode only about files that a model may or may
    /// not take, and mostly knows the answer already.
    pub(crate) async fn body(
        &self,
        session: &Session,
        prompt: &str,
        input: &[Input],
        options: &PromptOptions,
    ) -> String {
        let options = options.or(&self.defaults);
        let in_question = |input: &Input| matches!(input, Input::File(file) if kind(file).is_some());
        let takes = if input.iter().any(in_question) {
            self.catalog.takes(session, &options).await
        } else {
            Takes::default()
        };
        body(prompt, Path::new(&session.directory), input, &options, takes)
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
}

#[derive(Serialize, Debug)]
struct Model<'a> {
    #[serde(rename = "providerID")]
    provider: &'a str,
    #[serde(rename = "modelID")]
    model: &'a str,
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
}

/// The kinds of file that some models take.
#[derive(Clone, Copy)]
enum Kind {
    Image,
    Audio,
    Video,
    Pdf,
}

fn body(prompt: &str, directory: &Path, input: &[Input], options: &PromptOptions, takes: Takes) -> String {
    let body = Body {
        message: prompt,
        parts: input.iter().map(|input| part(input, directory, takes)).collect(),
        agent: options.agent.as_deref(),
        model: options.model.as_ref().map(|model| Model { provider: &model.provider, model: &model.model }),
        variant: options.variant.as_deref(),
        system: options.system.as_deref(),
    };
    serde_json::to_string(&body).expect("texts are JSON")
}

fn part<'a>(input: &'a Input, directory: &Path, takes: Takes) -> PromptPart<'a> {
    match input {
        Input::Text(text) => PromptPart::Text { text: text.as_str().into() },
        Input::File(file) => attached(file, takes)
            .unwrap_or_else(|| PromptPart::Text { text: manifest::of(file, directory).into() }),
    }
}

/// The file as OpenCode takes it. `None`: the model could not make use of it.
fn attached(file: &InputFile, takes: Takes) -> Option<PromptPart<'_>> {
    let (mime, name) = if file.is_text {
        (TEXT, Some(manifest::name(file).unwrap_or_else(|| NAMELESS.to_owned())))
    } else if kind(file).is_some_and(|kind| kind.is_taken(takes)) {
        (file.media_type.as_str(), manifest::name(file))
    } else {
        return None;
    };
    let url = match &file.source {
        FileSource::Inline(bytes) => format!("data:{mime};base64,{}", STANDARD.encode(bytes)),
        FileSource::Workspace(path) => Url::from_file_path(path).ok()?.into(),
        // OpenCode shows nothing of a remote text, and a remote picture makes the prompt fail.
        FileSource::Remote(_) => return None,
    };
    Some(PromptPart::File { mime, url, filename: name })
}

fn kind(file: &InputFile) -> Option<Kind> {
    let empty = file.content.is_some_and(|content| content.bytes == 0);
    // OpenCode refuses a prompt with a picture that has no content.
    if file.is_text || empty || matches!(file.source, FileSource::Remote(_)) {
        return None;
    }
    match file.media_type.split_once('/')? {
        // A drawing in words, which is no picture to any model.
        ("image", "svg+xml") => None,
        ("image", _) => Some(Kind::Image),
        ("audio", _) => Some(Kind::Audio),
        ("video", _) => Some(Kind::Video),
        ("application", "pdf") => Some(Kind::Pdf),
        _ => None,
    }
}

impl Kind {
    fn is_taken(self, takes: Takes) -> bool {
        match self {
            Self::Image => takes.image,
            Self::Audio => takes.audio,
            Self::Video => takes.video,
            Self::Pdf => takes.pdf,
        }
    }
}

#[cfg(test)]
mod tests;
