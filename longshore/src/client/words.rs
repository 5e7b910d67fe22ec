//! Short texts for people.

use longshore_client::TaskState;
use serde_json::Value;

/// The longest title of a tool call that is shown, in characters.
const MAX_TITLE: usize = 100;

/// The name of a state for people.
pub(super) fn word(state: TaskState) -> &'static str {
    match state {
        TaskState::InputRequired => "waits for your answer",
        TaskState::AuthRequired => "waits for credentials",
        state => state.as_str(),
    }
}

/// A short description of a tool call.
pub(super) fn title(call: &Value) -> String {
    let of = |value: &Value| value.as_str().map(str::to_owned).filter(|text| !text.is_empty());
    let input = &call["input"];
    let candidates =
        [&call["title"], &call["subtitle"], &input["command"], &input["filePath"], &input["path"]];
    cut(&candidates.into_iter().find_map(of).unwrap_or_default())
}

pub(super) fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(MAX_TITLE).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// A number with a comma before every three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The text of an ask without the advice for programs, because the commands print their own advice. Removes only the last line,
/// where the gateway appends the advice: the lines before can come from a command that the agent wants to run.
pub(super) fn without_advice(text: &str) -> &str {
    let is_advice = |line: &str| {
        let rest = line.strip_prefix("Answer with a message on this task");
        rest.is_some_and(|rest| rest.starts_with([':', ',']))
    };
    text.rsplit_once('\n').filter(|(_, last)| is_advice(last)).map_or(text, |(asked, _)| asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let shown = [0, 999, 1000, 123_456, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn a_title_is_one_short_line() {
        let call = serde_json::json!({"input": {"command": "one\ntwo"}});
        assert_eq!(title(&call), "one…");
        let call = serde_json::json!({"title": "x".repeat(500)});
        assert_eq!(title(&call).chars().count(), MAX_TITLE + 1);
    }
}
