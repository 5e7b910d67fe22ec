//! Reads a peer's task: the bounded result, the ask that waits for an answer, and the usage. Pure.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_client::{
    Artifact as RemoteArtifact, Content, Event, Message, Metadata, Part as RemotePart, Task,
};
use longshore_model::{
    Artifact, ArtifactId, AskOption, AskOptions, BlockKind, Cost, Json, OptionKind, Part, PartContent,
    Question, Usage, redact,
};
use serde_json::Value;

/// The longest question that the calling task shows, in characters.
const MAX_QUESTION: usize = 4_000;

/// The longest line of progress, in characters.
const MAX_LINE: usize = 200;

/// The most questions of one ask, and options of one question, that are passed on.
const MAX_QUESTIONS: usize = 16;

/// The part of a task or message that a model gets.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) artifacts: Vec<Artifact>,
}

/// An ask of the peer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RemoteAsk {
    pub(crate) question: String,
    /// Distinguishes the ask from other asks of the same task.
    pub(crate) identity: String,
    /// The peer's own id of the ask, if the peer names one.
    pub(crate) id: Option<String>,
    /// The possible answers to a permission request. `None`: the ask is a question.
    pub(crate) options: Option<AskOptions>,
    pub(crate) questions: Vec<Question>,
    /// Whether only the user may answer the ask, not the model.
    pub(crate) is_for_user: bool,
}

/// The texts of the task and its other artifacts, together at most `limit` bytes.
pub(crate) fn said(task: &Task, limit: usize) -> Said {
    let mut reading = Reading { limit, ..Reading::default() };
    for artifact in task.artifacts.iter().filter(|artifact| !is_inner_work(artifact)) {
        reading.artifact(artifact);
    }
    if let Some(message) = &task.status.message {
        let is_repeated =
            message.parts.iter().filter_map(RemotePart::as_text).all(|text| reading.text.contains(text));
        if !is_repeated {
            reading.message(message);
        }
    }
    reading.finish()
}

/// The result from a message, for a peer that answers without a task.
pub(crate) fn said_in(message: &Message, limit: usize) -> Said {
    let mut reading = Reading { limit, ..Reading::default() };
    reading.message(message);
    reading.finish()
}

/// Whether the artifact is reasoning or a tool call of the peer's agent. The caller's model does not get these.
fn is_inner_work(artifact: &RemoteArtifact) -> bool {
    let kind = artifact.metadata.get("shared").map_or(&Value::Null, |shared| &shared["stream"]["block_type"]);
    matches!(kind.as_str(), Some("reasoning" | "tool_call"))
}

#[derive(Default)]
struct Reading {
    limit: usize,
    used: usize,
    text: String,
    artifacts: Vec<Artifact>,
    /// How many bytes of text were left out.
    cut: usize,
    left_out: Vec<String>,
}

impl Reading {
    fn message(&mut self, message: &Message) {
        for text in message.parts.iter().filter_map(RemotePart::as_text) {
            self.add_text(text);
        }
        let others: Vec<&RemotePart> = message.parts.iter().filter(|part| part.as_text().is_none()).collect();
        if !others.is_empty() {
            self.add_artifact(None, None, &others);
        }
    }

    fn artifact(&mut self, artifact: &RemoteArtifact) {
        let (texts, others): (Vec<_>, Vec<_>) =
            artifact.parts.iter().partition(|part| part.as_text().is_some() && part.filename.is_none());
        let text: String = texts.iter().filter_map(|part| part.as_text()).collect();
        self.add_text(&text);
        if !others.is_empty() {
            self.add_artifact(artifact.name.as_deref(), artifact.description.as_deref(), &others);
        }
    }

    fn add_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        let room = self.limit.saturating_sub(self.used);
        let kept = text.floor_char_boundary(room);
        self.text.push_str(&text[..kept]);
        self.used += kept;
        self.cut += text.len() - kept;
    }

    fn add_artifact(&mut self, name: Option<&str>, description: Option<&str>, parts: &[&RemotePart]) {
        let parts: Vec<Part> = parts.iter().filter_map(|part| convert(part)).collect();
        let weight = parts.iter().map(|part| part.weight() + part.overhead()).sum::<usize>();
        let named = name.or_else(|| parts.iter().find_map(|part| part.filename.as_deref()));
        let named = redact::cut_at(named.unwrap_or("without a name"), MAX_LINE);
        if parts.is_empty() || self.used + weight > self.limit || self.artifacts.len() >= MAX_ARTIFACTS {
            self.left_out.push(format!("{named} ({weight} bytes)"));
            return;
        }
        self.used += weight;
        let number = self.artifacts.len() + 1;
        let short = |text: &str| redact::cut_at(text, MAX_LINE);
        self.artifacts.push(Artifact {
            id: ArtifactId::parse(&format!("artifact-{number}")).expect("a number makes an id"),
            kind: BlockKind::File,
            source_message: None,
            name: name.map(short),
            description: description.map(short),
            parts,
            extensions: Vec::new(),
            metadata: None,
        });
    }

    fn finish(mut self) -> Said {
        if self.cut > 0 {
            let _ = write!(self.text, "\n[{} more bytes of text were left out]", self.cut);
        }
        if !self.left_out.is_empty() {
            let shown = self.left_out.iter().take(MAX_QUESTIONS).cloned().collect::<Vec<_>>().join(", ");
            let _ = write!(self.text, "\n[artifacts that were left out because of their size: {shown}]");
        }
        Said { text: self.text, artifacts: self.artifacts }
    }
}

/// The most artifacts that a model gets.
const MAX_ARTIFACTS: usize = 64;

fn convert(part: &RemotePart) -> Option<Part> {
    let content = match &part.content {
        Content::Text(text) => PartContent::Text(text.clone()),
        Content::Raw(encoded) => PartContent::Raw(STANDARD.decode(encoded).ok()?),
        Content::Url(url) => PartContent::Url(url.clone()),
        Content::Data(data) => PartContent::Data(Json::from_value(data)),
    };
    let short = |text: &String| redact::cut_at(text, MAX_LINE);
    Some(Part {
        media_type: part.media_type.as_ref().map(short),
        filename: part.filename.as_ref().map(short),
        ..Part::new(content)
    })
}

/// Reads the ask from a task that waits for input.
pub(crate) fn ask(task: &Task, metadata: &Metadata) -> RemoteAsk {
    let own = &task.metadata;
    let interrupt = [metadata, own]
        .into_iter()
        .filter_map(|metadata| metadata.get("shared").map(|shared| &shared["interrupt"]))
        .find(|interrupt| interrupt["phase"] == "asked")
        .unwrap_or(&Value::Null);
    let message = task.status.message.as_ref();
    let id = interrupt["request_id"].as_str().map(str::to_owned);
    let message_id = message.map(|message| message.message_id.clone()).filter(|id| !id.is_empty());
    let text = match (&id, &message_id) {
        // If several asks are open, a Longshore peer puts the newest into the status message but names the oldest in the metadata.
        (Some(id), Some(message_id)) if is_of_other_ask(&task.id, id, message_id) => {
            format!("It asks ({}): {}", interrupt["type"].as_str().unwrap_or("ask"), interrupt["details"])
        }
        _ => message.map(Message::text).unwrap_or_default(),
    };
    let question =
        if text.trim().is_empty() { "It asks for input without saying which." } else { text.trim() };
    let is_permission = interrupt["type"] == "permission";
    RemoteAsk {
        question: redact::cut_at(question, MAX_QUESTION),
        identity: id.clone().or(message_id).unwrap_or_else(|| redact::cut_at(question, MAX_QUESTION)),
        id,
        options: is_permission.then(|| options(&interrupt["options"])),
        questions: questions(&interrupt["details"]["questions"], question),
        is_for_user: !interrupt.is_null() && interrupt["type"] != "question",
    }
}

/// Whether the message id shows that a status message of a Longshore peer belongs to another ask than `ask`.
fn is_of_other_ask(task: &str, ask: &str, message: &str) -> bool {
    message.strip_prefix(task).and_then(|rest| rest.strip_prefix('.')).is_some_and(|shown| shown != ask)
}

/// Whether an event says that an ask is closed.
pub(crate) fn is_resolved(metadata: &Metadata) -> bool {
    metadata.get("shared").is_some_and(|shared| shared["interrupt"]["phase"] == "resolved")
}

fn options(listed: &Value) -> AskOptions {
    let text = |option: &Value, name: &str| option[name].as_str().unwrap_or_default().to_owned();
    let option = |option: &Value| AskOption {
        id: text(option, "id"),
        name: text(option, "name"),
        kind: OptionKind::parse(option["kind"].as_str().unwrap_or_default()),
    };
    let listed = AskOptions::new(listed.as_array().into_iter().flatten().map(option));
    if listed.is_empty() { AskOptions::words() } else { listed }
}

/// The questions that the peer lists, or its whole text as one question if it lists none.
fn questions(listed: &Value, text: &str) -> Vec<Question> {
    let read = |question: &Value| {
        let options = question["options"].as_array().into_iter().flatten().take(MAX_QUESTIONS);
        let label = |option: &Value| option["label"].as_str().or(option.as_str()).map(str::to_owned);
        Some(Question {
            text: redact::cut_at(question["question"].as_str()?, MAX_QUESTION),
            options: options.filter_map(label).collect(),
            multiple: question["multiple"] == true,
            custom: question["custom"] != false,
        })
    };
    let listed: Option<Vec<Question>> =
        listed.as_array().and_then(|all| all.iter().take(MAX_QUESTIONS).map(read).collect());
    listed.filter(|questions| !questions.is_empty()).unwrap_or_else(|| {
        let text = redact::cut_at(text, MAX_QUESTION);
        vec![Question { text, options: Vec::new(), multiple: false, custom: true }]
    })
}

/// The total usage of the peer so far, if the metadata of an event has it.
pub(crate) fn usage(metadata: &Metadata) -> Option<Usage> {
    let usage = metadata.get("shared")?.get("usage")?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    Some(Usage {
        input: number(&usage["input_tokens"]),
        output: number(&usage["output_tokens"]),
        total: number(&usage["total_tokens"]),
        reasoning: number(&usage["reasoning_tokens"]),
        cache_read: number(&usage["cache_tokens"]["read_tokens"]),
        cache_write: number(&usage["cache_tokens"]["write_tokens"]),
        cost: Cost::from_float(usage["cost"].as_f64().unwrap_or(0.0)),
    })
}

/// The metadata of an event that can hold usage or an ask.
pub(crate) fn metadata(event: &Event) -> Option<&Metadata> {
    match event {
        Event::Task(task) => Some(&task.metadata),
        Event::StatusUpdate(update) => Some(&update.metadata),
        Event::Message(_) | Event::ArtifactUpdate(_) => None,
    }
}

/// A progress line for the event. `None`: the event has nothing worth a line.
pub(crate) fn line(event: &Event) -> Option<String> {
    let text = match event {
        Event::StatusUpdate(update) => update.status.message.as_ref()?.text(),
        Event::ArtifactUpdate(update) => {
            let call = update.artifact.parts.iter().find_map(|part| match &part.content {
                Content::Data(data) => data["tool"].as_str().map(|tool| (tool, data["title"].as_str())),
                _ => None,
            });
            let (tool, title) = call?;
            match title {
                Some(title) => format!("uses {tool}: {title}"),
                None => format!("uses {tool}"),
            }
        }
        Event::Task(_) | Event::Message(_) => return None,
    };
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(redact::cut_at(line, MAX_LINE))
}

#[cfg(test)]
mod tests {
    use longshore_client::Status;
    use serde_json::json;

    use super::*;

    fn artifact(parts: Vec<RemotePart>, block: &str) -> RemoteArtifact {
        let metadata = json!({"shared": {"stream": {"block_type": block}}});
        RemoteArtifact {
            artifact_id: "a".to_owned(),
            name: Some("report".to_owned()),
            description: None,
            parts,
            metadata: metadata.as_object().unwrap().clone(),
        }
    }

    fn task(artifacts: Vec<RemoteArtifact>) -> Task {
        Task {
            id: "t".to_owned(),
            context_id: "c".to_owned(),
            status: Status::default(),
            artifacts,
            history: Vec::new(),
            metadata: Metadata::new(),
        }
    }

    #[test]
    fn text_and_files_are_read_and_inner_work_is_not() {
        let file = RemotePart {
            filename: Some("a.bin".to_owned()),
            ..RemotePart::new(Content::Raw("aGk=".to_owned()))
        };
        let said = said(
            &task(vec![
                artifact(vec![RemotePart::text("thinks")], "reasoning"),
                artifact(vec![RemotePart::text("The answer."), file], "text"),
            ]),
            1000,
        );
        assert_eq!(said.text, "The answer.");
        assert_eq!(said.artifacts.len(), 1);
        assert_eq!(said.artifacts[0].parts[0].content, PartContent::Raw(b"hi".to_vec()));
    }

    #[test]
    fn results_beyond_the_limit_are_left_out_and_mentioned() {
        let data = RemotePart::data(json!({"long": "x".repeat(50)}));
        let said = said(&task(vec![artifact(vec![RemotePart::text("é".repeat(10)), data], "text")]), 15);
        assert!(said.text.starts_with("ééééééé\n[6 more bytes of text were left out]"), "{}", said.text);
        assert!(said.text.contains("because of their size: report"), "{}", said.text);
        assert!(said.artifacts.is_empty());
    }

    #[test]
    fn an_ask_without_hints_is_one_question() {
        let ask = ask(&task(Vec::new()), &Metadata::new());
        assert_eq!((ask.options, ask.id, ask.questions.len()), (None, None, 1));
    }
}
