//! Failures on the way to OpenCode and back, which a test arranges in advance.

use std::time::Duration;

use super::gate::Gate;

/// What happens to a request instead of, or besides, its answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answers with this status and does nothing. 401 has an empty body, as in the real OpenCode.
    Status(u16),
    /// Answers 200 with a web page, as the real OpenCode does for every unknown path.
    Html,
    /// Answers 200 with this body as JSON.
    Body(&'static str),
    /// Answers with this status, and this body as JSON.
    Answer(u16, &'static str),
    /// Answers after this time.
    Delay(Duration),
    /// Answers when the test opens the gate.
    Hold(Gate),
    /// Receives the request and never answers.
    Hang,
    /// Closes the connection without doing anything.
    CutBefore,
    /// Does what the request asks for, then closes the connection without an answer.
    CutAfter,
}

/// A fault and the requests that meet it.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) method: &'static str,
    pub(super) path_end: &'static str,
    pub(super) fault: Fault,
    /// How many more requests meet the fault. `None`: all.
    pub(super) left: Option<usize>,
}

impl Rule {
    pub(super) fn matches(&self, method: &str, path: &str) -> bool {
        (self.method == "*" || self.method == method) && self.ends(path) && self.left != Some(0)
    }

    /// A `*` in the end of the path stands for one segment, such as an id.
    fn ends(&self, path: &str) -> bool {
        if !self.path_end.contains('*') {
            return path.ends_with(self.path_end);
        }
        let mut segments = path.rsplit('/');
        let mut wanted = self.path_end.trim_start_matches('/').rsplit('/');
        wanted.all(|wanted| segments.next().is_some_and(|found| wanted == "*" || wanted == found))
    }
}

/// How an `/event` stream breaks off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutKind {
    /// The body ends as if it were complete.
    CleanEnd,
    /// The body ends in the middle of a line.
    MidLine,
    /// The connection is reset; the body never ends.
    Reset,
}

/// A break of `/event` during a turn.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// How many events of the next turn come before the break.
    pub after: usize,
    pub how: CutKind,
    /// How many of the following events are lost. Only then can a reader connect again, and the turn goes on when one has.
    /// `usize::MAX`: no reader can connect until the turn is over.
    pub lose: usize,
}

/// What the readers of `/event` receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    #[default]
    Live,
    /// Every event comes after lines that a reader must ignore.
    WithGarbage,
    /// Only heartbeats: OpenCode is alive, its events are lost.
    HeartbeatsOnly,
}

/// Lines that are no event of any session: comments, other fields, no field at all, broken JSON, JSON of other shapes,
/// unknown event kinds, a line that ends with CRLF.
pub(super) const GARBAGE: &str = ": a comment\n\n\
    event: surprise\nid: 7\nretry: 5\ndata: {\"type\":\"from.the.future\",\"properties\":{\"sessionID\":\"ses_x\"}}\n\n\
    <html>\n\n\
    data: {\"id\":\"evt_broken\",\"type\":\"message.part.delta\",\"proper\n\n\
    data: []\n\ndata: null\n\ndata:\n\n\
    data: {\"type\":\"session.idle\"}\n\n\
    data: {\"type\":\"message.part.updated\",\"properties\":{\"part\":7}}\r\n\r\n";
