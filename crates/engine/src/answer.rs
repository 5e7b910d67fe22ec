//! Reads a plain message as the answer to an ask. Does no IO.

use longshore_model::{
    Answer, Ask, AskKind, AskOption, Error, Json, Message, OptionKind, PartContent, PermissionReply,
    Question, RequestId, Result, ask_options,
};
use serde::Deserialize;

use crate::config::AlwaysScope;

/// Reads the answer of a client that does not use the extension methods: a data part, or plain text.
///
/// A data part names the ask by `request_id` and holds a `reply`, an `option`, `answers` or `words`. Plain text answers the
/// only open ask.
pub(crate) fn read(message: &Message, open: &[&Ask], scope: AlwaysScope) -> Result<(RequestId, Answer)> {
    for (index, part) in message.parts.iter().enumerate() {
        if let PartContent::Data(data) = &part.content {
            let field = format!("message.parts[{index}].data");
            let data: AnswerData = serde_json::from_str(data.get()).map_err(|cause| {
                Error::invalid(&field, "must hold request_id and reply (or answers)").caused_by(cause)
            })?;
            let ask = find(open, data.request_id.as_deref(), &field)?;
            let answer = match &data.words {
                Some(words) => from_words(ask, words.trim(), scope)?,
                None => from_data(ask, data, scope, &field)?,
            };
            return Ok((ask.request_id.clone(), answer));
        }
    }
    let ask = find(open, None, "message.parts")?;
    let words: Vec<&str> = message.parts.iter().filter_map(|part| part.as_text()).collect();
    Ok((ask.request_id.clone(), from_words(ask, words.join("\n").trim(), scope)?))
}

/// Checks an answer against the options of its ask. Replaces a named option by its id, or by one of the three words (`once`,
/// `always`, `reject`) if the option has both the id and the kind of that word. The error is a sentence that lists the options.
pub(crate) fn fit(ask: &Ask, answer: Answer, scope: AlwaysScope) -> Result<Answer, String> {
    let refusal = |error: Error| {
        let text = if ask.options.are_words() { "must be once, always or reject" } else { error.message() };
        text.to_owned()
    };
    let answer = match answer {
        Answer::PermissionOption { option, message } => {
            let option = ask.options.named(&option).map_err(refusal)?;
            let word = PermissionReply::parse(&option.id).filter(|word| option.kind == kind_of(*word));
            match word {
                Some(reply) => Answer::Permission { reply, message },
                None if option.kind.may_be_kept() && scope == AlwaysScope::Session => {
                    let would = if option.kind.is_always() { "would" } else { "might" };
                    return Err(format!(
                        "The agent {would} keep the answer {}, perhaps also for other sessions and callers. This gateway passes \
                         such an answer on only if control.always_scope is agent. {}",
                        option.id,
                        how_to_choose(ask, scope)
                    ));
                }
                None => Answer::PermissionOption { option: option.id.clone(), message },
            }
        }
        other => other,
    };
    if let Answer::Permission { reply, .. } = &answer {
        ask.options.choose(sent_reply(*reply, scope)).map_err(refusal)?;
    }
    Ok(answer)
}

fn kind_of(word: PermissionReply) -> OptionKind {
    match word {
        PermissionReply::Once => OptionKind::AllowOnce,
        PermissionReply::Always => OptionKind::AllowAlways,
        PermissionReply::Reject => OptionKind::RejectOnce,
    }
}

/// The options of an ask that a caller may name, for people.
pub(crate) fn list_options(ask: &Ask, scope: AlwaysScope) -> String {
    let may_be_named = |option: &&AskOption| scope == AlwaysScope::Agent || !option.kind.may_be_kept();
    ask_options::list(ask.options.iter().filter(may_be_named))
}

/// A sentence that says how to answer a permission request whose agent has its own options.
pub(crate) fn how_to_choose(ask: &Ask, scope: AlwaysScope) -> String {
    let is_offered = |reply: &PermissionReply| ask.options.choose(sent_reply(*reply, scope)).is_ok();
    let words: Vec<_> =
        PermissionReply::ALL.into_iter().filter(is_offered).map(PermissionReply::as_str).collect();
    let (words, options) = (words.join(", "), list_options(ask, scope));
    let or = if options.is_empty() { String::new() } else { format!(", or name an option: {options}") };
    let always = match scope {
        AlwaysScope::Session => "always: for this session and its sub-agents, until revoked.",
        AlwaysScope::Agent => "The agent keeps an always, perhaps also for other sessions and callers.",
    };
    format!("Answer with a message on this task: {words}{or}. {always}")
}

/// The reply that is sent to the agent. With [`AlwaysScope::Session`] the agent gets `once` for `always`, because the gateway
/// keeps the approval.
pub(crate) fn sent_reply(reply: PermissionReply, scope: AlwaysScope) -> PermissionReply {
    match (reply, scope) {
        (PermissionReply::Always, AlwaysScope::Session) => PermissionReply::Once,
        (reply, _) => reply,
    }
}

/// The two forms in which a message can answer an ask.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum AnswerForm {
    /// A data part that answers the ask with this id.
    Named(RequestId),
    /// Plain text, which answers the only open ask.
    Text,
}

/// The form that a message has as an answer. `None`: the message is no answer, or has further content.
pub(crate) fn form(message: &Message) -> Option<AnswerForm> {
    let named = |data: &Json| {
        let data: AnswerData = serde_json::from_str(data.get()).ok()?;
        let answers =
            data.reply.is_some() || data.option.is_some() || data.answers.is_some() || data.words.is_some();
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

/// The text of a message that has no other content and is short enough for the name of an option.
pub(crate) fn short_text(message: &Message) -> Option<String> {
    let words: Option<Vec<&str>> = message.parts.iter().map(|part| part.as_text()).collect();
    let text = words?.join("\n").trim().to_owned();
    (text.len() <= 4 * ask_options::MAX_OPTION_NAME_CHARS).then_some(text)
}

#[derive(Deserialize)]
struct AnswerData {
    request_id: Option<String>,
    reply: Option<String>,
    /// The id or the name of an option.
    #[serde(alias = "option_id")]
    option: Option<String>,
    message: Option<String>,
    answers: Option<Vec<Vec<String>>>,
    /// The answer as free text, read in the same way as a message of plain text.
    words: Option<String>,
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

fn from_data(ask: &Ask, data: AnswerData, scope: AlwaysScope, field: &str) -> Result<Answer> {
    let (name, reply) = match (data.reply, data.option) {
        (reply, None) => ("reply", reply),
        (None, option) => ("option", option),
        (Some(_), Some(_)) => {
            return Err(Error::invalid(format!("{field}.option"), "must not come together with reply"));
        }
    };
    match (ask.kind, reply, data.answers) {
        (AskKind::Permission, Some(reply), None) => fit(ask, Answer::permission(&reply, data.message), scope)
            .map_err(|text| Error::invalid(format!("{field}.{name}"), text)),
        (AskKind::Question, None, Some(answers)) => Ok(Answer::Question { answers }),
        (AskKind::Question, Some(reply), None)
            if PermissionReply::parse(&reply) == Some(PermissionReply::Reject) =>
        {
            Ok(Answer::RejectQuestion)
        }
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

fn from_words(ask: &Ask, words: &str, scope: AlwaysScope) -> Result<Answer> {
    let refused = |text: &str| {
        Error::invalid("message.parts", format!("{}. {}", text.trim_end_matches('.'), ask.summary))
    };
    match ask.kind {
        AskKind::Permission => {
            // The text after "reject" is a reason, which the agent gets. But the name of an option may also begin with one of the
            // three words.
            let (word, reason) = word_and_reason(words);
            let is_option = ask.options.named(words).is_ok();
            let answer = match PermissionReply::parse(word) {
                Some(reply) if reason.is_empty() => Answer::Permission { reply, message: None },
                Some(PermissionReply::Reject) if !is_option => {
                    Answer::Permission { reply: PermissionReply::Reject, message: Some(reason.to_owned()) }
                }
                Some(_) if !is_option => {
                    return Err(refused("must be just once or always; only reject takes a reason"));
                }
                _ => Answer::PermissionOption { option: words.to_owned(), message: None },
            };
            fit(ask, answer, scope).map_err(|text| refused(&text))
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

/// One answer for each question. A single question gets the whole text; several questions get one line each.
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
