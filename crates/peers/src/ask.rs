//! Converts an ask of a peer to an ask of the calling task, and the answer back to a message. Pure.

use longshore_client::Part;
use longshore_model::{Answer, Ask, AskKind, Json, RequestId, SessionId};
use serde_json::{Value, json};

use crate::record::OpenAsk;
use crate::remote::RemoteAsk;

/// The ask in the form that the calling task shows. `call`: the agent's own tool call, which waits for the answer.
pub(crate) fn of_task(
    id: &RequestId,
    peer: &str,
    remote: &RemoteAsk,
    session: &SessionId,
    call: Option<String>,
) -> Ask {
    let is_permission = remote.options.is_some();
    let asks = if is_permission { "asks for a permission" } else { "asks" };
    let summary = format!("The agent {peer}, which this task called, {asks}: {}", remote.question);
    Ask {
        request_id: id.clone(),
        kind: if is_permission { AskKind::Permission } else { AskKind::Question },
        session: session.clone(),
        summary,
        details: Json::from_value(
            &json!({"peer": peer, "question": remote.question, "peer_request_id": remote.id}),
        ),
        questions: if is_permission { Vec::new() } else { remote.questions.clone() },
        call,
        permission: None,
        options: remote.options.clone().unwrap_or_default(),
    }
}

/// The message that answers the ask at the peer. A peer that gave its ask an id gets the answer as data, any other peer gets text.
pub(crate) fn parts(ask: &OpenAsk, answer: &Answer) -> Vec<Part> {
    let Some(remote) = &ask.remote else { return vec![Part::text(words(answer))] };
    let mut data = match answer {
        Answer::Permission { reply, .. } => json!({"reply": reply.as_str()}),
        Answer::PermissionOption { option, .. } => json!({"option": option}),
        Answer::Question { answers } => json!({"answers": answers}),
        Answer::RejectQuestion => json!({"reply": "reject"}),
    };
    data["request_id"] = remote.as_str().into();
    if let Answer::Permission { message: Some(message), .. }
    | Answer::PermissionOption { message: Some(message), .. } = answer
    {
        data["message"] = Value::from(message.as_str());
    }
    vec![Part::data(data)]
}

fn words(answer: &Answer) -> String {
    match answer {
        Answer::Permission { reply, message } => match message {
            Some(message) => format!("{}: {message}", reply.as_str()),
            None => reply.as_str().to_owned(),
        },
        Answer::PermissionOption { option, .. } => option.clone(),
        Answer::Question { answers } => {
            answers.iter().map(|answers| answers.join(", ")).collect::<Vec<_>>().join("\n")
        }
        Answer::RejectQuestion => {
            "The question is not answered. Go on without an answer, or end the task.".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_client::Content;
    use longshore_model::PermissionReply;

    use super::*;

    #[test]
    fn an_answer_names_the_ask_if_the_peer_did() {
        let once = Answer::Permission { reply: PermissionReply::Once, message: None };
        let text = Answer::Question { answers: vec![vec!["a".to_owned(), "b".to_owned()]] };
        let id = RequestId::parse("peer_1").unwrap();
        let asked = RemoteAsk {
            question: String::new(),
            identity: String::new(),
            id: None,
            options: None,
            questions: Vec::new(),
            is_for_user: false,
        };
        let shown = of_task(&id, "b", &asked, &SessionId::parse("ses_1").unwrap(), None);
        let ask = |remote: Option<&str>| OpenAsk {
            id: id.clone(),
            question: String::new(),
            identity: String::new(),
            is_permission: true,
            remote: remote.map(str::to_owned),
            shown: Box::new(shown.clone()),
        };
        let cases = [
            (Some("per_1"), &once, Content::Data(json!({"reply": "once", "request_id": "per_1"}))),
            (Some("q"), &text, Content::Data(json!({"answers": [["a", "b"]], "request_id": "q"}))),
            (None, &once, Content::Text("once".to_owned())),
            (None, &text, Content::Text("a, b".to_owned())),
        ];
        for (remote, answer, expected) in cases {
            assert_eq!(parts(&ask(remote), answer)[0].content, expected);
        }
    }
}
