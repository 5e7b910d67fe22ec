//! Asks in plain words.
//!
//! Paths and commands stay in them: they are what the caller decides about.

use longshore_model::{Ask, AskKind};

use crate::api::{PermissionAsk, QuestionAsk};
use crate::redact;

pub(crate) fn permission(ask: &PermissionAsk, of_sub_agent: bool) -> Ask {
    let who = if of_sub_agent { "A sub-agent" } else { "The agent" };
    let what = match ask.permission.as_str() {
        "bash" => "run",
        "edit" => "edit",
        "read" => "read",
        "webfetch" => "fetch",
        "external_directory" => "work outside its directory, in",
        "task" => "start the sub-agent",
        "doom_loop" => "repeat the same tool call, of",
        "" => "do something",
        other => other,
    };
    let summary = if ask.patterns.is_empty() {
        format!("{who} asks for permission to {what}.")
    } else {
        format!("{who} asks for permission to {what}: {}", ask.patterns.join(", "))
    };
    Ask { request_id: ask.id.clone(), kind: AskKind::Permission, summary: redact::cut(&summary) }
}

pub(crate) fn question(ask: &QuestionAsk, of_sub_agent: bool) -> Ask {
    let who = if of_sub_agent { "A sub-agent" } else { "The agent" };
    let questions: Vec<String> = ask
        .questions
        .iter()
        .map(|question| {
            let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
            if labels.is_empty() {
                question.question.clone()
            } else {
                format!("{} ({})", question.question, labels.join(", "))
            }
        })
        .collect();
    let summary = if questions.is_empty() {
        format!("{who} asks a question.")
    } else {
        format!("{who} asks: {}", questions.join(" "))
    };
    Ask { request_id: ask.id.clone(), kind: AskKind::Question, summary: redact::cut(&summary) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_in_plain_words() {
        let cases = [
            (
                r#"{"id":"per_1","sessionID":"ses_1","permission":"bash","patterns":["rm -f x"],"always":["rm *"]}"#,
                false,
                "The agent asks for permission to run: rm -f x",
            ),
            (
                r#"{"id":"per_1","sessionID":"ses_1","permission":"external_directory","patterns":["/etc/*"]}"#,
                true,
                "A sub-agent asks for permission to work outside its directory, in: /etc/*",
            ),
            (
                r#"{"id":"per_1","sessionID":"ses_1"}"#,
                false,
                "The agent asks for permission to do something.",
            ),
            (
                r#"{"id":"per_1","sessionID":"ses_1","permission":"my_tool","patterns":["a","b"]}"#,
                false,
                "The agent asks for permission to my_tool: a, b",
            ),
        ];
        for (json, of_sub_agent, expected) in cases {
            let ask = permission(&serde_json::from_str(json).unwrap(), of_sub_agent);
            assert_eq!(
                (ask.request_id.as_str(), ask.kind, ask.summary.as_str()),
                ("per_1", AskKind::Permission, expected)
            );
        }
    }

    #[test]
    fn questions_in_plain_words() {
        let cases = [
            (
                r#"{"id":"que_1","sessionID":"ses_1","questions":[
                    {"question":"Which colour?","header":"Colour","options":[{"label":"Red"},{"label":"Green"}]},
                    {"question":"Why?"}]}"#,
                "The agent asks: Which colour? (Red, Green) Why?",
            ),
            (r#"{"id":"que_1","sessionID":"ses_1"}"#, "The agent asks a question."),
        ];
        for (json, expected) in cases {
            let ask = question(&serde_json::from_str(json).unwrap(), false);
            assert_eq!((ask.kind, ask.summary.as_str()), (AskKind::Question, expected));
        }
    }
}
