//! Terminals in the content of tool calls. The gateway shows the output of the command in their place.

use std::collections::VecDeque;

use super::tool::text_of;
use crate::schema::ToolUpdate;

/// How many terminals of a turn are remembered. Beyond that the oldest is forgotten, and a call that names it later shows only its
/// id.
const MAX_TERMINALS: usize = 64;

/// The outputs of the terminals of a turn.
#[derive(Debug, Default)]
pub(super) struct Outputs(VecDeque<(String, String)>);

impl Outputs {
    pub(super) fn set(&mut self, id: &str, output: &str) {
        if let Some((_, text)) = self.0.iter_mut().find(|(known, _)| known == id) {
            return output.clone_into(text);
        }
        self.0.push_back((id.to_owned(), output.to_owned()));
        if self.0.len() > MAX_TERMINALS {
            self.0.pop_front();
        }
    }

    fn get(&self, id: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, text)| text.as_str())
    }
}

/// The content of a call that contains terminals.
#[derive(Debug)]
pub(super) struct Embedded {
    /// The text, with a placeholder for each terminal.
    text: String,
    terminals: Vec<String>,
}

impl Embedded {
    /// Parses the content of an update. `None`: the update has no content with a terminal.
    pub(super) fn find(update: &ToolUpdate) -> Option<Self> {
        let terminals: Vec<String> = update
            .content
            .iter()
            .flatten()
            .filter(|content| content.kind == "terminal")
            .map(|content| content.terminal_id.clone())
            .collect();
        if terminals.is_empty() {
            return None;
        }
        Some(Self { text: text_of(update)?, terminals })
    }

    pub(super) fn shows(&self, id: &str) -> bool {
        self.terminals.iter().any(|terminal| terminal == id)
    }

    /// Whether the output of one of the terminals is known, so that its command runs or has run.
    pub(super) fn has_output(&self, outputs: &Outputs) -> bool {
        self.terminals.iter().any(|id| outputs.get(id).is_some())
    }

    /// The content with the outputs. A terminal that the gateway does not know is the agent's own and is only named.
    pub(super) fn fill(&self, outputs: &Outputs) -> String {
        let mut text = self.text.clone();
        for id in &self.terminals {
            let name = placeholder(id);
            if let (Some(output), Some(at)) = (outputs.get(id), text.find(&name)) {
                let end = at + name.len();
                // The text after the placeholder begins with a line break anyway.
                let is_followed = text[end..].starts_with('\n');
                let output = output.strip_suffix('\n').filter(|_| is_followed).unwrap_or(output);
                text.replace_range(at..end, output);
            }
        }
        text
    }
}

/// The placeholder for a terminal.
pub(super) fn placeholder(id: &str) -> String {
    format!("[terminal {id}]")
}

#[cfg(test)]
mod tests {
    use longshore_model::{AgentEvent, PromptId, SessionId};
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::super::{SessionTotals, Translator};
    use super::*;
    use crate::schema::Update;

    /// The kind, status and output of each event.
    fn shown(translator: &mut Translator) -> Vec<(bool, &'static str, Option<String>)> {
        let call = |event| match event {
            AgentEvent::Tool { call, .. } => (true, call.status.as_str(), call.output),
            AgentEvent::ToolOutput { call, .. } => (false, call.status.as_str(), call.output),
            other => panic!("{other:?}"),
        };
        translator.take().into_iter().map(call).collect()
    }

    fn update(translator: &mut Translator, kind: &str, mut value: Value) {
        value["sessionUpdate"] = kind.into();
        value["toolCallId"] = "c".into();
        translator.update(&Update::read(&to_raw_value(&value).unwrap()));
    }

    fn translator() -> Translator {
        let (session, prompt) = (SessionId::parse("s").unwrap(), PromptId::parse("p").unwrap());
        Translator::new(session, &prompt, SessionTotals::of_new_session())
    }

    #[test]
    fn a_call_shows_the_output_of_its_terminals_as_it_grows() {
        let mut translator = translator();
        let content = json!([
            {"type": "content", "content": {"type": "text", "text": "runs:"}},
            {"type": "terminal", "terminalId": "t1"},
            {"type": "terminal", "terminalId": "other"},
        ]);
        translator.terminal("t1", "early\n");
        update(&mut translator, "tool_call", json!({"title": "shell", "content": content}));
        translator.terminal("t1", "early\nlate\n");
        translator.terminal("t2", "of another call");
        update(
            &mut translator,
            "tool_call_update",
            json!({"status": "completed", "rawOutput": {"output": "raw"}}),
        );
        translator.terminal("t1", "too late");
        let expected = |text: &str| Some(text.to_owned());
        assert_eq!(
            shown(&mut translator),
            [
                (true, "running", expected("runs:\nearly\n[terminal other]")),
                (true, "running", expected("runs:\nearly\nlate\n[terminal other]")),
                (true, "completed", expected("runs:\nearly\nlate\n[terminal other]")),
            ]
        );
    }

    #[test]
    fn added_output_is_reported_alone_and_new_content_replaces_the_terminal() {
        let mut translator = translator();
        let content = json!([{"type": "terminal", "terminalId": "t1"}]);
        update(
            &mut translator,
            "tool_call",
            json!({"title": "shell", "status": "in_progress", "content": content}),
        );
        translator.terminal("t1", "a");
        translator.terminal("t1", "ab");
        let text = json!([{"type": "content", "content": {"type": "text", "text": "done"}}]);
        update(&mut translator, "tool_call_update", json!({"status": "failed", "content": text}));
        let events = shown(&mut translator);
        assert_eq!(events[1], (true, "running", Some("a".to_owned())));
        assert_eq!(events[2], (false, "running", Some("b".to_owned())));
        assert_eq!((events.len(), events[3].1), (4, "error"));
    }

    #[test]
    fn the_oldest_terminals_are_forgotten() {
        let mut outputs = Outputs::default();
        for number in 0..=MAX_TERMINALS {
            outputs.set(&number.to_string(), "x");
        }
        assert_eq!((outputs.get("0"), outputs.get("1"), outputs.0.len()), (None, Some("x"), MAX_TERMINALS));
    }
}
