//! The reply to a prompt without directives.

use std::time::Duration;

use super::{End, StreamedReply, words};
use crate::request::ParsedRequest;
use crate::script::{self, Directive};

/// The answer to a request to sum up the conversation.
pub(super) const SUMMARY: &str = "## Goal\nA scripted conversation with the demo model.\n\n## Progress\n- \
                                  All that was asked so far has been answered.\n\n## Next steps\n- None.\n";

/// How many characters of the prompt are repeated.
const ECHO: usize = 160;

/// The pace of the greeting: fast enough not to bore, slow enough to show the streaming.
const PACE: Duration = Duration::from_millis(8);

/// Explains the demo model, and which directives to try.
pub(super) fn speech(asked: &ParsedRequest) -> StreamedReply {
    let text = format!(
        "Ahoy! This is Longshore's demo model. Your message came in over A2A, went through Longshore and a real \
         OpenCode, and ended here: a script inside the gateway that answers offline and does not think.\n\n\
         You wrote: \"{}\"\n\n\
         Some words make it do more. Send one of these as your message:\n\n\
         - scn:text n=40 delay=100 (text, slowly)\n\
         - scn:reason (reasoning, then text)\n\
         - scn:bash cmd=\"ls -l\" scn:text (a tool, then text)\n\
         - scn:write path=hello.txt content=\"ahoy\" scn:read path=hello.txt scn:text (two tools, then text)\n\
         - scn:todo scn:text (a list of things to do)\n\
         - scn:task prompt=\"scn:text n=3\" scn:text (a sub-agent)\n\
         - scn:bash cmd=\"touch guarded\" scn:text (a command that asks for permission)\n\
         - scn:question scn:text (a question to you)\n\
         - scn:http status=429 times=1 retry_after_ms=500 (a provider that fails once)\n\
         - scn:cut times=1 (a stream that breaks off once)\n\
         - scn:forever (an answer without end: cancel it)\n\n\
         To talk to a model that does think, run `longshore serve`: it uses your own OpenCode and its models.\n",
        excerpt(&asked.prompt),
    );
    let pieces = (text.chars().count() / 24).try_into().unwrap_or(u64::MAX);
    StreamedReply::new(asked, &Directive::new("text"), words::split(&text, pieces), End::stop()).paced(PACE)
}

/// A name for the conversation: the directives of its script, or the first words of its first message.
pub(super) fn title(asked: &ParsedRequest) -> String {
    let script = script::parse(&asked.opening);
    if !script.is_empty() {
        let names: Vec<&str> = script.iter().take(6).map(|directive| directive.name.as_str()).collect();
        return format!("Demo: {}", names.join(", "));
    }
    let words: Vec<&str> = asked.opening.split_whitespace().take(6).collect();
    if words.is_empty() { "Demo".to_owned() } else { format!("Demo: {}", excerpt(&words.join(" "))) }
}

/// The beginning of a text, on one line.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ECHO) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}
