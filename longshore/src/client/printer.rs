//! Writes to the terminal or a pipe: the answer to standard output, everything else to standard error.
//!
//! Colours and the status line appear only on a terminal, and never with `NO_COLOR`. Text of an agent cannot control the terminal.

use std::io::IsTerminal as _;

use crate::output;

/// The role of a piece of text, which decides how it looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    Plain,
    Dim,
    Good,
    Bad,
    Ask,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Ask => "\x1b[1m",
        }
    }
}

/// Standard output and standard error. If both are the same terminal, they share its cursor.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about one of the outputs")]
pub(crate) struct Printer {
    out_is_terminal: bool,
    err_is_terminal: bool,
    has_colours: bool,
    /// Whether the last text on standard output had no line end. The next field is the same for standard error.
    out_is_open: bool,
    err_is_open: bool,
    has_status: bool,
}

impl Printer {
    pub(crate) fn new() -> Self {
        let err_is_terminal = std::io::stderr().is_terminal();
        // According to https://no-color.org, any value except an empty one switches colours off.
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            out_is_terminal: std::io::stdout().is_terminal(),
            err_is_terminal,
            has_colours: err_is_terminal && !is_refused && !is_dumb,
            out_is_open: false,
            err_is_open: false,
            has_status: false,
        }
    }

    /// Whether standard error is a terminal, so that a person watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.err_is_terminal
    }

    /// Writes a part of the answer.
    pub(crate) fn answer(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.clear_status();
        if self.shares_terminal() && self.err_is_open {
            self.end_err();
        }
        if self.out_is_terminal {
            output::write(&output::harmless(text));
        } else {
            output::write(text);
        }
        self.out_is_open = !text.ends_with('\n');
    }

    /// Ends the line of the answer, if one is open.
    pub(crate) fn end_answer(&mut self) {
        if self.out_is_open {
            self.clear_status();
            output::write("\n");
            self.out_is_open = false;
        }
    }

    /// Writes a piece of text that is not part of the answer, without a line end.
    pub(crate) fn aside(&mut self, style: Style, text: &str) {
        if text.is_empty() {
            return;
        }
        self.before_aside();
        self.write_err(style, text);
        self.err_is_open = !text.ends_with('\n');
    }

    /// Writes a line that is not part of the answer.
    pub(crate) fn line(&mut self, style: Style, text: &str) {
        self.before_aside();
        self.end_err();
        self.write_err(style, text);
        output::write_aside("\n");
    }

    /// Records that a person has typed the line end of a prompt.
    pub(crate) fn typed(&mut self) {
        self.err_is_open = false;
    }

    /// Ends the open line on standard error, if there is one.
    pub(crate) fn end_aside(&mut self) {
        if self.err_is_open {
            self.clear_status();
            self.end_err();
        }
    }

    /// Shows the status line, if no other line is open.
    pub(crate) fn status(&mut self, text: &str) {
        if !self.err_is_terminal || self.err_is_open || (self.out_is_open && self.out_is_terminal) {
            return;
        }
        let text = output::harmless_line(text);
        let (dim, end) = if self.has_colours { (Style::Dim.code(), "\x1b[0m") } else { ("", "") };
        output::write_aside(&format!("\r\x1b[K{dim}{text}{end}"));
        self.has_status = true;
    }

    pub(crate) fn clear_status(&mut self) {
        if std::mem::take(&mut self.has_status) {
            output::write_aside("\r\x1b[K");
        }
    }

    fn shares_terminal(&self) -> bool {
        self.out_is_terminal && self.err_is_terminal
    }

    fn before_aside(&mut self) {
        self.clear_status();
        if self.shares_terminal() {
            self.end_answer();
        }
    }

    fn end_err(&mut self) {
        if std::mem::take(&mut self.err_is_open) {
            output::write_aside("\n");
        }
    }

    fn write_err(&self, style: Style, text: &str) {
        let text = output::harmless(text);
        if self.has_colours && style != Style::Plain {
            output::write_aside(&format!("{}{text}\x1b[0m", style.code()));
        } else {
            output::write_aside(&text);
        }
    }
}
