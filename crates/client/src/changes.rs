//! Applies events to a task, and computes the events that lead from one state of a task to another.

use std::collections::HashSet;

use longshore_model::TaskState;

use crate::value::{
    Artifact, ArtifactUpdate, Content, Event, Message, Metadata, Part, Role, Status, StatusUpdate, Task,
    weight_of_entry, weight_of_metadata,
};

impl Task {
    /// An empty task, for an update of a task that the client has not read.
    pub(crate) fn of_update(id: &str, context_id: &str) -> Self {
        Self {
            id: id.to_owned(),
            context_id: context_id.to_owned(),
            status: Status::default(),
            artifacts: Vec::new(),
            history: Vec::new(),
            metadata: Metadata::new(),
        }
    }

    /// Applies a status update. `weight`: the task's weight before. Returns the weight after.
    pub(crate) fn apply_status(&mut self, update: &StatusUpdate, mut weight: usize) -> usize {
        let old = std::mem::replace(&mut self.status, update.status.clone());
        let is_shown_still =
            |message: &Message| self.status.message.as_ref().is_some_and(|now| now == message);
        let is_new = !old.message.as_ref().is_some_and(is_shown_still);
        if let Some(message) = self.status.message.as_ref().filter(|_| is_new) {
            weight += message.weight();
        }
        if let Some(message) = old.message.filter(|_| is_new) {
            self.history.push(message);
        }
        for (name, value) in &update.metadata {
            weight += weight_of_entry(name, value);
            if let Some(old) = self.metadata.insert(name.clone(), value.clone()) {
                weight = weight.saturating_sub(weight_of_entry(name, &old));
            }
        }
        weight
    }

    /// Applies an artifact update. `weight`: the task's weight before. Returns the weight after.
    pub(crate) fn apply_artifact(&mut self, update: &ArtifactUpdate, weight: usize) -> usize {
        let artifact = &update.artifact;
        let Some(known) =
            self.artifacts.iter_mut().rev().find(|known| known.artifact_id == artifact.artifact_id)
        else {
            self.artifacts.push(artifact.clone());
            return weight + artifact.weight();
        };
        if !update.append {
            let lost = known.weight();
            known.clone_from(artifact);
            return weight.saturating_sub(lost) + artifact.weight();
        }
        // Join texts only from the last known part on, so the cost of an update does not grow with the artifact.
        let mut added: Vec<Part> = known.parts.pop().into_iter().collect();
        let lost = parts_weight(&added);
        added.extend(artifact.parts.iter().cloned());
        join_texts(&mut added);
        let gained = parts_weight(&added);
        known.parts.append(&mut added);
        weight.saturating_sub(lost) + gained
    }

    /// Adds the artifacts that only the older state has, because some agents leave them out of a task in a stream.
    pub(crate) fn keep_missing(&mut self, old: &mut Self) {
        let known: HashSet<String> =
            self.artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect();
        let mut artifacts: Vec<Artifact> =
            old.artifacts.drain(..).filter(|artifact| !known.contains(&artifact.artifact_id)).collect();
        artifacts.append(&mut self.artifacts);
        self.artifacts = artifacts;
    }

    /// About how many bytes of memory the task takes.
    pub(crate) fn weight(&self) -> usize {
        let messages = self.history.iter().chain(&self.status.message).map(Message::weight);
        let artifacts = self.artifacts.iter().map(Artifact::weight);
        messages.chain(artifacts).sum::<usize>() + weight_of_metadata(&self.metadata)
    }
}

fn parts_weight(parts: &[Part]) -> usize {
    parts.iter().map(Part::weight).sum()
}

/// The events that lead from `old` to `new`, two states of one task. A reader that has seen `old` and gets these events has seen
/// all of `new`, and nothing twice.
pub(crate) fn changes(old: &Task, new: &Task) -> Vec<Event> {
    let mut events = Vec::new();
    let seen: HashSet<&str> =
        old.history.iter().chain(&old.status.message).map(|message| message.message_id.as_str()).collect();
    let is_missed = |message: &&Message| {
        message.role == Role::Agent
            && !message.message_id.is_empty()
            && !seen.contains(message.message_id.as_str())
    };
    for message in new.history.iter().filter(is_missed) {
        // The stream missed the status of this message. Its state is unknown, but the task had not ended, so WORKING fits.
        let status =
            Status { state: Some(TaskState::Working), message: Some(message.clone()), timestamp: None };
        events.push(status_event(new, status, Metadata::new()));
    }
    for artifact in &new.artifacts {
        let known = old.artifacts.iter().find(|known| known.artifact_id == artifact.artifact_id);
        let Some((parts, append)) = new_parts(known, artifact) else { continue };
        events.push(Event::ArtifactUpdate(ArtifactUpdate {
            task_id: new.id.clone(),
            context_id: new.context_id.clone(),
            artifact: Artifact { parts, ..artifact.clone() },
            append,
            last_chunk: false,
            metadata: Metadata::new(),
        }));
    }
    // A new timestamp alone is no change.
    let is_same = old.status.state == new.status.state && old.status.message == new.status.message;
    if !is_same || (old.metadata != new.metadata && !new.metadata.is_empty()) {
        events.push(status_event(new, new.status.clone(), new.metadata.clone()));
    }
    events
}

fn status_event(task: &Task, status: Status, metadata: Metadata) -> Event {
    Event::StatusUpdate(StatusUpdate {
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        status,
        metadata,
    })
}

/// The new parts of an artifact, and whether a reader appends them to the known parts. `None`: the artifact has not changed.
fn new_parts(old: Option<&Artifact>, new: &Artifact) -> Option<(Vec<Part>, bool)> {
    let mut parts = new.parts.clone();
    join_texts(&mut parts);
    let Some(old) = old else { return Some((parts, false)) };
    let mut before = old.parts.clone();
    join_texts(&mut before);
    if before == parts {
        return None;
    }
    let Some((last, whole)) = before.split_last() else { return Some((parts, true)) };
    let grown = parts.len() > whole.len() && parts[..whole.len()] == *whole;
    let rest = grown.then(|| rest_of(last, &parts[whole.len()])).flatten();
    match rest {
        Some(rest) => {
            let more = parts.split_off(whole.len() + 1);
            Some((rest.into_iter().chain(more).collect(), true))
        }
        None => Some((parts, false)),
    }
}

/// The parts that a grown part `new` adds to `old`: none if both are equal. `None`: `new` does not continue `old`.
fn rest_of(old: &Part, new: &Part) -> Option<Vec<Part>> {
    if old == new {
        return Some(Vec::new());
    }
    let rest = new.as_text()?.strip_prefix(old.as_text()?)?;
    let rest = Part { content: Content::Text(rest.to_owned()), ..new.clone() };
    let same = Part { content: old.content.clone(), ..rest.clone() } == *old;
    same.then(|| vec![rest])
}

/// Joins adjacent texts with the same attributes, because agents may split a text anywhere.
fn join_texts(parts: &mut Vec<Part>) {
    parts.dedup_by(|next, kept| {
        let same = kept.filename == next.filename
            && kept.media_type == next.media_type
            && kept.metadata == next.metadata;
        match (&mut kept.content, &next.content) {
            (Content::Text(text), Content::Text(more)) if same => {
                text.push_str(more);
                true
            }
            _ => false,
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task(artifacts: &[(&str, &[&str])]) -> Task {
        let artifacts = artifacts.iter().map(|(id, texts)| Artifact {
            artifact_id: (*id).to_owned(),
            name: None,
            description: None,
            parts: texts.iter().map(|text| Part::text(*text)).collect(),
            metadata: Metadata::new(),
        });
        Task { artifacts: artifacts.collect(), ..Task::of_update("t", "c") }
    }

    fn shown(events: &[Event]) -> Vec<String> {
        let shown = |event: &Event| match event {
            Event::ArtifactUpdate(update) => {
                let text: Vec<_> = update.artifact.parts.iter().filter_map(Part::as_text).collect();
                let sign = if update.append { "+" } else { "=" };
                format!("{}{sign}{}", update.artifact.artifact_id, text.join("|"))
            }
            Event::StatusUpdate(update) => {
                let message = update.status.message.as_ref().map(Message::text).unwrap_or_default();
                format!("{:?} {message}", update.status.state)
            }
            other => format!("{other:?}"),
        };
        events.iter().map(shown).collect()
    }

    #[test]
    fn only_what_is_new_is_shown() {
        type Artifacts<'a> = &'a [(&'a str, &'a [&'a str])];
        let cases: [(Artifacts<'_>, Artifacts<'_>, &[&str]); 7] = [
            (&[], &[("a", &["one"])], &["a=one"]),
            (&[("a", &["one"])], &[("a", &["one"])], &[]),
            (&[("a", &["on", "e"])], &[("a", &["one"])], &[]),
            (&[("a", &["one"])], &[("a", &["one", " two"])], &["a+ two"]),
            (&[("a", &["one"])], &[("a", &["one two"]), ("b", &["x"])], &["a+ two", "b=x"]),
            (&[("a", &["half"])], &[("a", &["whole"])], &["a=whole"]),
            (&[("a", &["one"]), ("b", &["x"])], &[("a", &["one"])], &[]),
        ];
        for (old, new, expected) in cases {
            let (old, new) = (task(old), task(new));
            assert_eq!(shown(&changes(&old, &new)), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn a_part_that_is_no_text_is_replaced_and_a_text_after_it_is_added() {
        let with = |parts: Vec<Part>| {
            let mut task = task(&[("a", &[])]);
            task.artifacts[0].parts = parts;
            task
        };
        let call = |status: &str| Part::data(json!({"status": status}));
        let events = changes(&with(vec![call("running")]), &with(vec![call("completed")]));
        let [Event::ArtifactUpdate(update)] = &events[..] else { panic!("{events:?}") };
        assert!(!update.append && update.artifact.parts == [call("completed")]);
        let events = changes(&with(vec![call("x")]), &with(vec![call("x"), Part::text("more")]));
        assert_eq!(shown(&events), ["a+more"]);
    }

    /// Some agents put their text into status messages, and keep earlier ones in the history.
    #[test]
    fn a_missed_status_message_is_shown_once() {
        let message = |id: &str, text: &str| Message {
            message_id: id.to_owned(),
            context_id: String::new(),
            task_id: String::new(),
            role: Role::Agent,
            parts: vec![Part::text(text)],
            metadata: Metadata::new(),
        };
        let status = |message: Message| Status {
            state: Some(TaskState::Working),
            message: Some(message),
            timestamp: None,
        };
        let mut old = task(&[]);
        for (id, text) in [("1", "one"), ("2", "two")] {
            let update = StatusUpdate {
                task_id: "t".to_owned(),
                context_id: "c".to_owned(),
                status: status(message(id, text)),
                metadata: Metadata::new(),
            };
            old.apply_status(&update, 0);
        }
        let mut new = task(&[]);
        new.history = vec![message("1", "one"), message("2", "two"), message("3", "three")];
        new.status = status(message("4", "four"));
        assert_eq!(shown(&changes(&old, &new)), ["Some(Working) three", "Some(Working) four"]);
        assert_eq!(shown(&changes(&new, &new)), [""; 0]);
    }
}
