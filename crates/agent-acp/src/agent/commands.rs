//! Prevents callers from running a shell through the agent's commands.
//!
//! An agent runs a command if a prompt begins with a slash and the command's name. The gateway does not see the command's template,
//! which may pass the text after the name to a shell without asking for permission. So a prompt that adds anything to the name
//! needs the right to run a shell.
//!
//! Agents differ in what they take for the beginning of a prompt: OpenCode joins all texts, Qwen Code reads the first text and
//! Claude Code the last one. So every text counts as a beginning, and a name may continue in the next text.

use std::time::Duration;

use longshore_engine::port::{FileSource, Input, InputFile};
use longshore_model::{Error, PromptOptions, Result};

use super::AcpAgent;
use crate::connection::Connection;
use crate::content::PromptBlock;
use crate::schema::Command;

/// How long a turn whose prompt may begin with a command waits for the agent to name its commands. After that, the commands of other
/// sessions in the same directory count, or every word after a slash if there are none.
const PATIENCE: Duration = Duration::from_secs(5);

impl AcpAgent {
    /// Checks an incoming message against the commands of the last opened session, if that session is in the same directory.
    pub(super) fn check_known_commands(
        &self,
        directory: &str,
        input: &[Input],
        options: &PromptOptions,
    ) -> Result<()> {
        let prompt = Prompt::of_input(input);
        if self.may_run(options) || !prompt.may_begin_with_command() {
            return Ok(());
        }
        let known = self.facts().and_then(|facts| facts.session);
        match known.filter(|session| session.directory == directory).and_then(|session| session.commands) {
            Some(commands) if prompt.adds_to_one_of(&commands.entries) => Err(refusal(KNOWN)),
            _ => Ok(()),
        }
    }

    /// Waits until the agent has named its commands, if the check of the message needs them.
    pub(super) async fn wait_for_commands(
        &self,
        connection: &Connection,
        session: &str,
        input: &[Input],
        options: &PromptOptions,
    ) {
        let prompt = Prompt::of_input(input);
        let needs_check =
            prompt.may_begin_with_command() && (prompt.parts > 1 || prompt.may_add_to_command());
        if !self.may_run(options) && needs_check {
            connection.wait_for_commands(session, PATIENCE).await;
        }
    }

    /// Checks the blocks that the agent is about to receive.
    pub(super) fn check_commands(
        &self,
        connection: &Connection,
        session: &str,
        blocks: &[PromptBlock],
        options: &PromptOptions,
    ) -> Result<()> {
        let prompt = Prompt::of_blocks(blocks);
        if self.may_run(options) || !prompt.may_begin_with_command() {
            return Ok(());
        }
        let known = connection.commands_of(session);
        let are_all_known = !known.is_empty() && known.iter().all(|commands| commands.is_whole);
        if known.iter().any(|commands| prompt.adds_to_one_of(&commands.entries)) {
            Err(refusal(KNOWN))
        } else if !are_all_known && prompt.may_add_to_command() {
            Err(refusal(UNKNOWN))
        } else {
            Ok(())
        }
    }

    /// Whether the caller may run a shell. Checked again, because the operator may have withdrawn the right since the message came.
    fn may_run(&self, options: &PromptOptions) -> bool {
        options.may_run && self.config.shell
    }
}

const KNOWN: &str = "The message begins with a slash and a command of the agent, and holds more than that.";

const UNKNOWN: &str = "The message begins with a slash and holds more than one name. The agent has not named all its commands, so \
                       the name may be one.";

fn refusal(why: &str) -> Error {
    let text = format!(
        "{why} The agent may run the rest in a shell. That needs the capability session_shell, on a gateway where the shell is enabled \
         (control.session_shell). Send the command alone, or begin each text with another word."
    );
    Error::invalid("message.parts", text)
}

/// The facts about a prompt that the check needs: its texts, and the number of all parts.
struct Prompt<'a> {
    texts: Vec<Text<'a>>,
    parts: usize,
}

struct Text<'a> {
    text: &'a str,
    /// Whether an agent may look for a command at the beginning of this text.
    may_begin: bool,
}

impl<'a> Prompt<'a> {
    fn of_input(input: &'a [Input]) -> Self {
        let text = |input: &'a Input| match input {
            Input::Text(text) => Some((text.as_str(), false)),
            Input::File(InputFile { is_text: true, source: FileSource::Inline(bytes), .. }) => {
                Some((std::str::from_utf8(bytes).ok()?, true))
            }
            Input::File(_) => None,
        };
        Self::new(input.len(), input.iter().filter_map(text))
    }

    fn of_blocks(blocks: &'a [PromptBlock]) -> Self {
        let text = |block: &'a PromptBlock| match block {
            PromptBlock::Text { text } => Some((text.as_str(), false)),
            PromptBlock::Resource { resource } => Some((resource.text.as_deref()?, true)),
            PromptBlock::Image { .. } | PromptBlock::Audio { .. } | PromptBlock::ResourceLink { .. } => None,
        };
        Self::new(blocks.len(), blocks.iter().filter_map(text))
    }

    /// The text of a file counts as a beginning only if nothing comes before it, because files often begin with a slash, for
    /// example lists of paths.
    fn new(parts: usize, all: impl Iterator<Item = (&'a str, bool)>) -> Self {
        let mut texts: Vec<Text<'a>> = Vec::new();
        for (text, is_file) in all {
            let may_begin =
                !is_file || texts.iter().all(|before| before.text.trim_start_matches(is_blank).is_empty());
            texts.push(Text { text, may_begin });
        }
        Self { texts, parts }
    }

    fn may_begin_with_command(&self) -> bool {
        self.texts.iter().any(|text| text.may_begin && FirstWord::of(text.text).is_some())
    }

    /// Whether the prompt gives the agent one of these commands and more.
    fn adds_to_one_of(&self, commands: &[Command]) -> bool {
        let names: Vec<String> = commands.iter().map(|command| name(&command.name)).collect();
        self.beginnings().any(|Beginning { word, is_cut, is_alone }| {
            names.iter().any(|name| match compare(&word, name) {
                Names::It => !is_alone,
                Names::ItAndMore => true,
                Names::Beginning => is_cut,
                Names::Other => false,
            })
        })
    }

    /// Whether the prompt may give the agent a command and more, whatever its commands are.
    fn may_add_to_command(&self) -> bool {
        self.beginnings().any(|Beginning { word, is_cut, is_alone }| {
            // A colon is a part of many names.
            let is_name = is_alone && !word.contains(|next| next != ':' && is_separator(next));
            is_cut || (may_be_name(&word) && !is_name)
        })
    }

    fn beginnings(&self) -> impl Iterator<Item = Beginning> {
        let last = self.texts.len().saturating_sub(1);
        self.texts.iter().enumerate().filter(|(_, text)| text.may_begin).filter_map(move |(at, text)| {
            let FirstWord { word, rest } = FirstWord::of(text.text)?;
            let is_alone = self.parts == 1 && rest.trim().is_empty();
            Some(Beginning { word, is_cut: at < last && rest.is_empty(), is_alone })
        })
    }
}

/// The first word of a text that may be a command.
struct Beginning {
    word: String,
    /// The next text may go on with the word.
    is_cut: bool,
    /// The prompt holds nothing else.
    is_alone: bool,
}

/// The first word of a text, after the slash.
struct FirstWord<'a> {
    /// The word in lower case, because one agent ignores the case.
    word: String,
    /// The text from the first blank after the word on.
    rest: &'a str,
}

impl<'a> FirstWord<'a> {
    /// Parses the beginning of a text. `None`: the text does not begin with a slash. Blanks are allowed before the slash, and one
    /// blank after it, because some agents allow them.
    fn of(text: &'a str) -> Option<Self> {
        let text = text.trim_start_matches(is_blank).strip_prefix('/')?;
        let text = text.trim_start_matches(|character| character == '/' || is_blank(character));
        let (word, rest) = text.split_at(text.find(is_blank).unwrap_or(text.len()));
        Some(Self { word: word.to_lowercase(), rest })
    }
}

/// How a word relates to the name of a command.
enum Names {
    It,
    /// The word consists of the name, a separator and more.
    ItAndMore,
    /// The word is a proper beginning of the name.
    Beginning,
    Other,
}

fn compare(word: &str, name: &str) -> Names {
    if word == name || own_name(word).is_some_and(|own| own_name(name) == Some(own)) {
        Names::It
    } else if word.strip_prefix(name).is_some_and(|more| more.starts_with(is_separator)) {
        Names::ItAndMore
    } else if name.starts_with(word) {
        Names::Beginning
    } else {
        Names::Other
    }
}

/// Whether the character ends the name of a command.
fn is_separator(next: char) -> bool {
    !next.is_alphanumeric() && !matches!(next, '-' | '_' | '.' | '/')
}

/// Whether the word may be the name of a command. That of a comment (`/*`) is not.
fn may_be_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('*')
}

/// The name of a command in the form in which a caller writes it. Some agents append the names of subcommands to a command's name.
fn name(advertised: &str) -> String {
    let word = advertised.split_whitespace().next().unwrap_or_default();
    word.trim_start_matches('/').to_lowercase()
}

/// A command's name without the name of the plugin or server from which the command comes. Claude Code accepts `/mcp:server:name`,
/// `/server:name (MCP)` and `/mcp__server__name`, and for a plugin `/plugin:name` and `/name`.
fn own_name(name: &str) -> Option<&str> {
    let own = name.rsplit(':').next()?.rsplit("__").next()?;
    Some(own).filter(|own| !own.is_empty())
}

/// Whether the character is Unicode white space or invisible.
fn is_blank(character: char) -> bool {
    character.is_whitespace()
        || character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}
