//! Reads a plain message as the answer to an ask. Pure.

use longshore_model::{
    Answer, Ask, AskKind, Error, Json, Message, PartContent, PermissionReply, Question, RequestId, Result,
};
use serde::Deserialize;

/// Reads the answer of a client that does not use the extension methods: a data part, or plain text.
///
/// A data part names the ask by `request_id` and holds a `reply` or `answers`. Text answers the one ask that is open.
pub(crate) fn read(message: &Message, open: &[&Ask]) -> Result<(RequestId, Answer)> {
    for (index, part) in message.parts.iter().enumerate() {
        if let PartContent::Data(data) = &part.content {
            let field = format!("message.parts[{index}].data");
            let data: AnswerData = serde_json::from_str(data.get()).map_err(|cause| {
                Error::invalid(&field, "must hold request_id and reply (or answers)").caused_by(cause)
            })?;
            let ask = find(open, data.request_id.as_deref(), &field)?;
            return Ok((ask.request_id.clone(), from_data(ask, data, &field)?));
        }
    }
    let ask = find(open, None, "message.parts")?;
    let words: Vec<&str> = message.parts.iter().filter_map(|part| part.as_text()).collect();
    Ok((ask.request_id.clone(), from_words(ask, words.join("\n").trim())?))
}

/// The two forms in which a message can answer an ask.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum AnswerForm {
    /// A data part answers this ask.
    Named(RequestId),
    /// Plain text, which answers the one ask that is open.
    Text,
}

/// The form that a message has as an answer. `None`: it is no answer, or says more than an answer would.
pub(crate) fn form(message: &Message) -> Option<AnswerForm> {
    let named = |data: &Json| {
        let data: AnswerData = serde_json::from_str(data.get()).ok()?;
        let answers = data.reply.is_some() || data.answers.is_some();
        RequestId::parse(&data.request_id?).ok().filter(|_| answers)
    };
    let mut data = message.parts.iter().filter_map(|part| match &part.content {
        PartContent::Data(data) => Some(data),
        _ => None,
    });
    if let Some(request) = data.find_map(named) {
        return Some(AnswerForm::Named(request));
    }
    let words: Option<Vec<&str>> = message.parts.iter().map(|part| part.as_text()).collect();
    let words = words?.join("\n");
    let (word, reason) = word_and_reason(words.trim());
    let reply = PermissionReply::parse(word)?;
    // A message that begins with "Reject " is often a prompt for the agent and not an answer.
    let is_sentence = words.trim()[word.len()..].starts_with(' ');
    let is_rejection = reply == PermissionReply::Reject && !is_sentence;
    (reason.is_empty() || is_rejection).then_some(AnswerForm::Text)
}

#[derive(Deserialize)]
struct AnswerData {
    request_id: Option<String>,
    reply: Option<String>,
    message: Option<String>,
    answers: Option<Vec<Vec<String>>>,
}

fn find<'a>(open: &[&'a Ask], request: Option<&str>, field: &str) -> Result<&'a Ask> {
    let Some(request) = request else {
        return match open {
            [one] => Ok(one),
            _ => Err(Error::invalid(
                field,
                format!(
                    "must say which ask it answers, by request_id in a data part; open are: {}",
                    list(open)
                ),
            )),
        };
    };
    open.iter().copied().find(|ask| ask.request_id.as_str() == request).ok_or_else(|| {
        Error::invalid(
            format!("{field}.request_id"),
            format!("is not open on this task; open are: {}", list(open)),
        )
    })
}

fn list(open: &[&Ask]) -> String {
    let each = |ask: &&Ask| format!("{} ({}: {})", ask.request_id, ask.kind, ask.summary);
    open.iter().map(each).collect::<Vec<_>>().join("; ")
}

fn from_data(ask: &Ask, data: AnswerData, field: &str) -> Result<Answer> {
    let reply = data.reply.as_deref().map(|word| {
        PermissionReply::parse(word)
            .ok_or_else(|| Error::invalid(format!("{field}.reply"), "must be once, always or reject"))
    });
    match (ask.kind, reply.transpose()?, data.answers) {
        (AskKind::Permission, Some(reply), None) => Ok(Answer::Permission { reply, message: data.message }),
        (AskKind::Question, None, Some(answers)) => Ok(Answer::Question { answers }),
        (AskKind::Question, Some(PermissionReply::Reject), None) => Ok(Answer::RejectQuestion),
        (AskKind::Permission, ..) => Err(Error::invalid(
            format!("{field}.reply"),
            "must be once, always or reject; a permission is asked",
        )),
        (AskKind::Question, ..) => Err(Error::invalid(
            format!("{field}.answers"),
            "must be a list with a list of answers for each question; a question is asked",
        )),
    }
}

fn from_words(ask: &Ask, words: &str) -> Result<Answer> {
    match ask.kind {
        AskKind::Permission => {
            // "reject" may be followed by a reason, which the agent gets.
            let (word, reason) = word_and_reason(words);
            let reply = PermissionReply::parse(word).ok_or_else(|| {
                Error::invalid("message.parts", format!("must be once, always or reject. {}", ask.summary))
            })?;
            if !reason.is_empty() && reply != PermissionReply::Reject {
                let text =
                    format!("must be just once or always; only reject takes a reason. {}", ask.summary);
                return Err(Error::invalid("message.parts", text));
            }
            let message = (!reason.is_empty()).then(|| reason.to_owned());
            Ok(Answer::Permission { reply, message })
        }
        AskKind::Question => {
            let is_label =
                ask.questions.iter().flat_map(|question| &question.options).any(|label| label == words);
            if words.eq_ignore_ascii_case("reject") && !is_label {
                return Ok(Answer::RejectQuestion);
            }
            if words.is_empty() {
                return Err(Error::invalid("message.parts", format!("must hold an answer. {}", ask.summary)));
            }
            Ok(Answer::Question { answers: answers(&ask.questions, words)? })
        }
    }
}

/// The first word, and the text after it.
fn word_and_reason(words: &str) -> (&str, &str) {
    const BETWEEN: [char; 4] = [' ', ':', ',', '\n'];
    let (word, reason) = words.split_once(BETWEEN).unwrap_or((words, ""));
    (word, reason.trim_matches(BETWEEN))
}

/// One answer per question. For one question this is the whole text, for several questions one line each.
fn answers(questions: &[Question], words: &str) -> Result<Vec<Vec<String>>> {
    if let [] | [_] = questions {
        return Ok(vec![
            questions.first().map_or_else(|| vec![words.to_owned()], |question| chosen(question, words)),
        ]);
    }
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.len() != questions.len() {
        let text = format!("must have one line for each of the {} questions", questions.len());
        return Err(Error::invalid("message.parts", text));
    }
    Ok(questions.iter().zip(lines).map(|(question, line)| chosen(question, line)).collect())
}

/// The chosen labels, as the agent spells them. Text that matches no label is returned as free text.
fn chosen(question: &Question, words: &str) -> Vec<String> {
    let label = |word: &str| question.options.iter().find(|label| label.eq_ignore_ascii_case(word)).cloned();
    if let Some(label) = label(words) {
        return vec![label];
    }
    if question.multiple {
        let several: Option<Vec<String>> = words.split([',', '\n']).map(|word| label(word.trim())).collect();
        if let Some(labels) = several {
            return labels;
        }
    }
    vec![words.to_owned()]
}

#[cfg(test)]
mod tests;
