//! Converts OpenCode's permission requests and questions into asks: a sentence for people, and OpenCode's own fields for programs.
//!
//! Paths and commands are not redacted, because the caller must see them to decide.

use std::borrow::Cow;

use longshore_model::{
    Action, Answer, Ask, AskKind, AskOptions, Error, ErrorKind, IdError, Json, PermissionRequest, Question,
    RequestId, Result as ModelResult, SessionId,
};
use serde::Serialize;

use crate::api::{AskedBy, PermissionAsk, QuestionAsk};
use crate::redact;

/// The metadata fields of a permission request that help a caller to decide. Other fields are not shown.
const SHOWN_METADATA: [&str; 5] = ["command", "filepath", "parentDir", "url", "diff"];

/// The maximum length of a metadata text, in characters. The diff of a large edit is longer. The rest is cut off, but the tool call
/// still has the whole text.
const MAX_METADATA_CHARS: usize = 4096;

#[derive(Serialize)]
struct PermissionDetails<'a> {
    permission: &'a str,
    patterns: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    always: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    metadata: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<Tool<'a>>,
}

#[derive(Serialize)]
struct QuestionDetails<'a> {
    questions: &'a [crate::api::Question],
}

#[derive(Serialize)]
struct Tool<'a> {
    message_id: &'a str,
    call_id: &'a str,
}

/// Converts a permission request. Fails if OpenCode's ids are not valid identifiers, because nobody could answer such an ask.
pub(crate) fn permission(ask: &PermissionAsk, of_sub_agent: bool) -> Result<Ask, IdError> {
    let who = who(of_sub_agent);
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
    let action = action(ask);
    let cut = |text: &String| redact::cut_at(text, MAX_METADATA_CHARS);
    let details = PermissionDetails {
        permission: &ask.permission,
        patterns: &ask.patterns,
        always: &ask.always,
        kind: action.kind.as_deref(),
        command: action.command.as_ref().map(cut),
        paths: action.paths.iter().map(cut).collect(),
        metadata: shown_metadata(&ask.metadata),
        tool: tool(ask.tool.as_ref()),
    };
    Ok(Ask {
        request_id: RequestId::parse(&ask.id)?,
        kind: AskKind::Permission,
        session: SessionId::parse(&ask.session)?,
        summary: redact::cut(&summary),
        details: Json::from_value(&details),
        questions: Vec::new(),
        call: call(ask.tool.as_ref()),
        permission: Some(Box::new(PermissionRequest {
            permission: ask.permission.clone(),
            patterns: ask.patterns.clone(),
            always: ask.always.clone(),
            action,
        })),
        options: AskOptions::words(),
    })
}

/// Converts a question. Fails as [`permission`] does.
pub(crate) fn question(ask: &QuestionAsk, of_sub_agent: bool) -> Result<Ask, IdError> {
    let who = who(of_sub_agent);
    let questions: Vec<Question> = ask
        .questions
        .iter()
        .map(|question| Question {
            text: question.text.clone(),
            options: question.options.iter().map(|option| option.label.clone()).collect(),
            multiple: question.multiple,
            custom: question.custom,
        })
        .collect();
    let texts: Vec<String> = questions
        .iter()
        .map(|question| match question.options.as_slice() {
            [] => question.text.clone(),
            options => format!("{} ({})", question.text, options.join(", ")),
        })
        .collect();
    let summary = if texts.is_empty() {
        format!("{who} asks a question.")
    } else {
        format!("{who} asks: {}", texts.join(" "))
    };
    let details = QuestionDetails { questions: &ask.questions };
    Ok(Ask {
        request_id: RequestId::parse(&ask.id)?,
        kind: AskKind::Question,
        session: SessionId::parse(&ask.session)?,
        summary: redact::cut(&summary),
        details: Json::from_value(&details),
        questions,
        call: call(ask.tool.as_ref()),
        permission: None,
        options: AskOptions::default(),
    })
}

/// Converts the answer into the form that OpenCode needs: one of its three words, or one answer for each question. Fails for an
/// answer of another kind, for more answers than questions, and for free text to a question that accepts only its options.
pub(crate) fn fit_answer<'a>(ask: &Ask, answer: &'a Answer) -> ModelResult<Cow<'a, Answer>> {
    if answer.kind() != ask.kind {
        return Err(Error::new(
            ErrorKind::InterruptTypeMismatch,
            format!("The agent asks a {}, and this answers a {}.", ask.kind, answer.kind()),
        ));
    }
    let answers = match answer {
        Answer::Question { answers } => answers,
        Answer::PermissionOption { option, message } => {
            let option = ask.options.named(option)?;
            return Ok(Cow::Owned(Answer::permission(&option.id, message.clone())));
        }
        Answer::Permission { .. } | Answer::RejectQuestion => return Ok(Cow::Borrowed(answer)),
    };
    let asked = ask.questions.len();
    // The gateway does not know the questions of this ask, so OpenCode has to check the answer.
    if asked == 0 {
        return Ok(Cow::Borrowed(answer));
    }
    if answers.len() > asked {
        return Err(Error::invalid(
            "answers",
            format!(
                "There are {} answers for {asked} questions; give one list of answers for each.",
                answers.len()
            ),
        ));
    }
    for (at, (question, chosen)) in ask.questions.iter().zip(answers).enumerate() {
        let own_words = chosen.iter().any(|word| !question.options.contains(word));
        if own_words && !question.custom && !question.options.is_empty() {
            let refusal = format!("This question takes only: {}.", question.options.join(", "));
            return Err(Error::invalid(format!("answers[{at}]"), redact::cut(&refusal)));
        }
    }
    if answers.len() == asked {
        return Ok(Cow::Borrowed(answer));
    }
    // OpenCode reports missing answers to the model as unanswered questions.
    let mut answers = answers.clone();
    answers.resize(asked, Vec::new());
    Ok(Cow::Owned(Answer::Question { answers }))
}

/// The action, as far as OpenCode reports it. OpenCode's permissions stand for kinds of tools, and do not name the tool itself.
/// Relative paths stay relative, because they start in the worktree of the project and not in the session's directory.
fn action(ask: &PermissionAsk) -> Action {
    let kind = match ask.permission.as_str() {
        "bash" => Some("execute"),
        "edit" => Some("edit"),
        "read" => Some("read"),
        "glob" | "grep" | "list" | "lsp" => Some("search"),
        "webfetch" | "websearch" | "codesearch" => Some("fetch"),
        _ => None,
    };
    let text = |key: &str| ask.metadata.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let command = match kind {
        // The commands of a chain (`a && b`) are requested together.
        Some("execute") => {
            text("command").or_else(|| Some(ask.patterns.join(" && ")).filter(|chain| !chain.is_empty()))
        }
        _ => None,
    };
    let named = ["filepath", "filePath", "path"].into_iter().find_map(text);
    // For a patch of several files, this text contains all their names, so it is no path.
    let named = named.filter(|_| kind != Some("edit") || ask.patterns.len() < 2);
    let paths = match (patched(&ask.metadata), named, kind) {
        (Some(paths), _, _) => paths,
        (None, Some(path), _) => vec![path],
        (None, None, Some("edit" | "read")) => ask.patterns.clone(),
        (None, None, _) => Vec::new(),
    };
    Action { tool: None, kind: kind.map(str::to_owned), command, paths }
}

/// The files of a patch, and their new names. `None`: some of them are not named.
fn patched(metadata: &serde_json::Value) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for file in metadata.get("files")?.as_array()? {
        paths.push(file.get("filePath")?.as_str()?.to_owned());
        match file.get("movePath") {
            None | Some(serde_json::Value::Null) => {}
            Some(path) => paths.push(path.as_str()?.to_owned()),
        }
    }
    Some(paths).filter(|paths| !paths.is_empty())
}

fn who(of_sub_agent: bool) -> &'static str {
    if of_sub_agent { "A sub-agent" } else { "The agent" }
}

fn call(by: Option<&AskedBy>) -> Option<String> {
    by?.call.clone()
}

fn tool(by: Option<&AskedBy>) -> Option<Tool<'_>> {
    let by = by?;
    Some(Tool { message_id: by.message.as_deref()?, call_id: by.call.as_deref()? })
}

fn shown_metadata(metadata: &serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    let shown = SHOWN_METADATA.into_iter().filter_map(|key| {
        let text = metadata.get(key)?.as_str()?;
        Some((key.to_owned(), redact::cut_at(text, MAX_METADATA_CHARS).into()))
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn permissions_in_plain_words() {
        let cases = [
            (
                json!({"permission": "bash", "patterns": ["rm -f x"], "always": ["rm *"]}),
                false,
                "The agent asks for permission to run: rm -f x",
            ),
            (
                json!({"permission": "external_directory", "patterns": ["/etc/*"]}),
                true,
                "A sub-agent asks for permission to work outside its directory, in: /etc/*",
            ),
            (json!({}), false, "The agent asks for permission to do something."),
            (
                json!({"permission": "my_tool", "patterns": ["a", "b"]}),
                false,
                "The agent asks for permission to my_tool: a, b",
            ),
        ];
        for (mut json, of_sub_agent, expected) in cases {
            json["id"] = "per_1".into();
            json["sessionID"] = "ses_1".into();
            let ask = permission(&serde_json::from_value(json).unwrap(), of_sub_agent).unwrap();
            assert_eq!(
                (ask.request_id.as_str(), ask.session.as_str(), ask.kind, ask.summary.as_str()),
                ("per_1", "ses_1", AskKind::Permission, expected)
            );
        }
    }

    #[test]
    fn permissions_for_programs() {
        let long = "x".repeat(MAX_METADATA_CHARS + 1);
        let cut = format!("{}…", "x".repeat(MAX_METADATA_CHARS - 1));
        let cases = [
            (
                json!({"permission": "bash", "patterns": ["rm x"], "always": ["rm *"],
                    "metadata": {"command": "rm x", "env": {"KEY": "secret"}, "url": 7},
                    "tool": {"messageID": "msg_1", "callID": "call_1"}}),
                json!({"permission": "bash", "patterns": ["rm x"], "always": ["rm *"], "kind": "execute", "command": "rm x",
                    "metadata": {"command": "rm x"}, "tool": {"message_id": "msg_1", "call_id": "call_1"}}),
            ),
            (
                json!({"permission": "edit", "patterns": ["a.rs"], "metadata": {"filepath": "/w/a.rs", "diff": long}}),
                json!({"permission": "edit", "patterns": ["a.rs"], "kind": "edit", "paths": ["/w/a.rs"],
                    "metadata": {"filepath": "/w/a.rs", "diff": cut}}),
            ),
            (
                json!({"permission": "bash", "patterns": ["cd x", "ls"]}),
                json!({"permission": "bash", "patterns": ["cd x", "ls"], "kind": "execute", "command": "cd x && ls"}),
            ),
            (
                json!({"permission": "read", "patterns": ["a.rs"]}),
                json!({"permission": "read", "patterns": ["a.rs"], "kind": "read", "paths": ["a.rs"]}),
            ),
            // A patch. The text with the names of all files is no path.
            (
                json!({"permission": "edit", "patterns": ["a.rs", "../b"], "metadata": {"filepath": "a.rs, ../b"}}),
                json!({"permission": "edit", "patterns": ["a.rs", "../b"], "kind": "edit", "paths": ["a.rs", "../b"],
                    "metadata": {"filepath": "a.rs, ../b"}}),
            ),
            (
                json!({"permission": "edit", "patterns": ["a.rs", "../b"], "metadata": {"filepath": "a.rs, ../b",
                    "files": [{"filePath": "/w/a.rs", "movePath": "/w/c.rs"}, {"filePath": "/b"}]}}),
                json!({"permission": "edit", "patterns": ["a.rs", "../b"], "kind": "edit",
                    "paths": ["/w/a.rs", "/w/c.rs", "/b"], "metadata": {"filepath": "a.rs, ../b"}}),
            ),
            (
                json!({"permission": "edit", "patterns": ["a.rs", "../b"], "metadata": {"filepath": "a.rs, ../b",
                    "files": [{"filePath": "/w/a.rs"}, {}]}}),
                json!({"permission": "edit", "patterns": ["a.rs", "../b"], "kind": "edit", "paths": ["a.rs", "../b"],
                    "metadata": {"filepath": "a.rs, ../b"}}),
            ),
            (
                json!({"permission": "lsp", "patterns": ["*"], "metadata": {"filePath": "/w/a.rs"}}),
                json!({"permission": "lsp", "patterns": ["*"], "kind": "search", "paths": ["/w/a.rs"]}),
            ),
            (
                json!({"permission": "external_directory", "patterns": ["/etc/*"], "metadata": {"filepath": "/etc/hosts"}}),
                json!({"permission": "external_directory", "patterns": ["/etc/*"], "paths": ["/etc/hosts"],
                    "metadata": {"filepath": "/etc/hosts"}}),
            ),
            (json!({}), json!({"permission": "", "patterns": []})),
        ];
        for (mut json, expected) in cases {
            json["id"] = "per_1".into();
            json["sessionID"] = "ses_1".into();
            let ask = permission(&serde_json::from_value(json).unwrap(), false).unwrap();
            assert_eq!(ask.details.to_value(), expected);
            let action = ask.permission.unwrap().action;
            let told = [(&action.kind, "kind"), (&action.command, "command")];
            assert!(
                told.into_iter()
                    .all(|(fact, name)| fact.as_deref() == expected.get(name).and_then(|fact| fact.as_str()))
            );
            assert_eq!(json!(action.paths), *expected.get("paths").unwrap_or(&json!([])));
            assert_eq!(ask.questions, []);
        }
    }

    #[test]
    fn questions_in_plain_words_and_for_programs() {
        let ask = json!({"id": "que_1", "sessionID": "ses_1", "questions": [
            {"question": "Which colour?", "header": "Colour", "multiple": true, "custom": false,
             "options": [{"label": "Red", "description": "Hot"}, {"label": "Green"}]},
            {"question": "Why?"}]});
        let ask = question(&serde_json::from_value(ask).unwrap(), false).unwrap();
        assert_eq!(ask.kind, AskKind::Question);
        assert_eq!(ask.summary, "The agent asks: Which colour? (Red, Green) Why?");
        let questions = [("Which colour?", vec!["Red", "Green"], true, false), ("Why?", vec![], false, true)];
        let questions = questions.map(|(text, options, multiple, custom)| Question {
            text: text.to_owned(),
            options: options.into_iter().map(str::to_owned).collect(),
            multiple,
            custom,
        });
        assert_eq!(ask.questions, questions);
        let details = json!({"questions": [
            {"header": "Colour", "question": "Which colour?", "multiple": true, "custom": false,
             "options": [{"label": "Red", "description": "Hot"}, {"label": "Green", "description": ""}]},
            {"header": "", "question": "Why?", "options": [], "multiple": false, "custom": true}]});
        assert_eq!(ask.details.to_value(), details);

        let empty = json!({"id": "que_1", "sessionID": "ses_1"});
        let ask = question(&serde_json::from_value(empty).unwrap(), true).unwrap();
        assert_eq!(ask.summary, "A sub-agent asks a question.");
    }

    #[test]
    fn an_ask_with_invalid_ids_is_refused() {
        for (id, session) in [("per 1", "ses_1"), ("per_1", ""), ("../x", "ses_1")] {
            let ask = serde_json::from_value(json!({"id": id, "sessionID": session})).unwrap();
            assert!(permission(&ask, false).is_err(), "{id:?} {session:?}");
        }
    }
}
