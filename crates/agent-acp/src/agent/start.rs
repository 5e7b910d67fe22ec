//! Starts turns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_engine::port::{FileSource, Input, InputFile, Resume, Session, Turn, TurnRequest};
use longshore_engine::queue;
use longshore_model::{
    AgentEvent, BlockKind, Error, ErrorKind, Failure, Outcome, PartContent, Resolution, Result,
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use sha2::{Digest as _, Sha256};
use std::io::Read as _;
use tokio::time::{Instant, timeout_at};

use super::AcpAgent;
use super::drive::Started;
use super::lease::Lease;
use crate::connection::CallError;
use crate::content;
use crate::schema::PromptCapabilities;

/// How many events of a turn may wait for the engine. At the limit, the agent waits.
const MAX_WAITING: usize = 256;

impl AcpAgent {
    pub(super) async fn start_new(&self, request: TurnRequest) -> Result<Turn> {
        let TurnRequest { session, prompt, input, options, order, prompting, .. } = request;
        if order.is_some() {
            let text = "This agent takes messages only, no commands or prompts in OpenCode's own form.";
            return Err(Error::new(ErrorKind::UnsupportedOperation, text));
        }
        let lease = self.lease_when_idle(&session).await?;
        let (connection, id) = (lease.connection(), session.id.as_str());
        let using = lease.use_session(id).await;
        lease.trim_sessions();
        let remark = match connection.facts(id) {
            Some(_) => None,
            None => self.reopen(&lease, &session).await?,
        };
        self.choose(connection, id, &options).await?;
        let takes = lease.live.about.agent_capabilities.prompt_capabilities;
        let not_taken = |cause: CallError| cause.into_error("take the prompt");
        // Before the room is taken, because others wait for that.
        self.wait_for_commands(connection, id, &input, &options).await;
        // Before the files are read, because a prompt that waits should hold as little as possible.
        let room = connection.room(content::size(&input, takes)).await.map_err(not_taken)?;
        let files = read_files(&input, takes).await;
        let blocks = content::blocks(&input, Path::new(&session.directory), takes, &files);
        self.check_commands(connection, id, &blocks, &options)?;
        prompting.mark();
        let id = session.id.clone();
        let started = crate::turn::Turn::start_in(Some(room), connection, id, &prompt, &blocks);
        let turn = started.map_err(|cause| {
            // The prompt's line was not even queued.
            prompting.unmark();
            not_taken(cause)
        })?;
        let turn = turn.with_epitaph(lease.epitaph());
        let (silence, patience) = (self.config.silence, self.config.cancel_patience);
        let (session, protected) = (session.id, Arc::clone(&self.config.protected));
        let started = Started { turn, session, prompt, lease, using, remark, silence, patience, protected };
        let (sender, events) = queue::channel(MAX_WAITING);
        let driver = self.turns.driver(started, sender);
        self.tasks.spawn("acp-turn", driver.run(self.tasks.clone()));
        // ACP has no way to add a message to a running turn.
        Ok(Turn { steering: None, events, refusal: None })
    }

    /// Ends a turn of an earlier run of the gateway. The agent's process ended with that run, so the turn is over. It is not known
    /// for certain whether the agent got the prompt, so the prompt is not sent again.
    pub(super) fn end_resumed(&self, session: &Session, resume: Resume) -> Turn {
        let Resume { artifacts, open_asks, .. } = resume;
        let texts = artifacts.iter().filter(|artifact| artifact.kind == BlockKind::Text);
        let heard: String = texts
            .flat_map(|artifact| &artifact.parts)
            .filter_map(|part| match &part.content {
                PartContent::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let text = if artifacts.is_empty() {
            "The gateway was restarted during the turn, and the agent with it, before the agent had reported anything. Whether it \
             had begun is not known; the prompt is not sent again."
        } else {
            "The gateway was restarted while the agent worked on the turn, and the agent with it. What it had said by then is \
             kept, and what it had done is done; the prompt is not sent again."
        };
        // The agent may continue the turn when it reopens the session.
        self.turns.note_broken(&session.id, heard);
        let (sender, events) = queue::channel(open_asks.len() + 1);
        let dropped = open_asks
            .into_iter()
            .map(|request_id| AgentEvent::AskClosed { request_id, resolution: Resolution::Dropped });
        let ended = AgentEvent::Ended(Outcome::Failed(Failure::new(text)));
        for event in dropped.chain([ended]) {
            let sent = sender.try_send(event);
            debug_assert!(sent.is_ok(), "the queue has room for all");
        }
        Turn { steering: None, events, refusal: None }
    }

    /// Waits until no turn runs in the session, because a canceled turn may take a moment to end. If the agent ignored a cancel in
    /// this session, waits for a new process.
    async fn lease_when_idle(&self, session: &Session) -> Result<Lease> {
        let deadline = Instant::now() + self.config.cancel_patience + self.config.limits.call;
        let busy = |_| {
            Error::new(
                ErrorKind::SessionBusy,
                "The agent still works on a turn of this session that was stopped. Try again later, or start a new context.",
            )
        };
        loop {
            if let Some(running) = self.turns.get(&session.id) {
                timeout_at(deadline, running.over()).await.map_err(busy)?;
                continue;
            }
            let changed = self.host.next_change();
            if !self.host.is_stuck(&session.id) {
                return self.host.lease().await;
            }
            timeout_at(deadline, changed).await.map_err(busy)?;
        }
    }
}

/// Reads the files whose bytes the prompt contains. Leaves out a file that cannot be read, or that has changed since it was
/// checked; the prompt then only describes it.
async fn read_files(input: &[Input], takes: PromptCapabilities) -> BTreeMap<PathBuf, Vec<u8>> {
    let needed = content::needed_files(input, takes);
    let mut files = Vec::new();
    for file in input {
        if let Input::File(InputFile { source: FileSource::Workspace(path), content: Some(facts), .. }) = file
            && needed.contains(&path.as_path())
        {
            files.push((path.clone(), *facts));
        }
    }
    if files.is_empty() {
        return BTreeMap::new();
    }
    let read = move || {
        let unchanged = |(path, facts): (PathBuf, longshore_engine::port::ContentFacts)| {
            let bytes = read_at_most(&path, facts.bytes).ok()?;
            (<[u8; 32]>::from(Sha256::digest(&bytes)) == facts.sha256).then_some((path, bytes))
        };
        files.into_iter().filter_map(unchanged).collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// Reads at most `most` bytes of a file. With NONBLOCK, opening a pipe that has replaced the file does not wait for a writer.
fn read_at_most(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = std::fs::File::from(openat(CWD, path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
