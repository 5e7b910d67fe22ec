//! Follows a task on the terminal: prints its events, prompts the person for answers, and handles Ctrl-C.

use std::collections::HashSet;
use std::time::Duration;

use longshore_client::{Client, ErrorKind, Event, Message, Outgoing, Task, TaskState, TaskStream};
use tokio::time::{MissedTickBehavior, interval};

use super::answer::Ask;
use super::exit::{Code, Failure, refused_option};
use super::printer::Style;
use super::render::Renderer;
use super::target::{self, Agent};
use super::{stdin, words};
use crate::cli::client::{AnswerAsk, Following, OutputFormat, WatchTask};
use crate::output;
use crate::signals::{Ended, Signals};

/// How often the status line is updated.
const TICK: Duration = Duration::from_millis(500);

/// After Ctrl-C, the command waits this long before it cancels the task. A second Ctrl-C in that time leaves the task running.
const SECOND_THOUGHT: Duration = Duration::from_secs(2);

/// `longshore tasks watch`.
pub(crate) async fn watch(options: &WatchTask) -> Result<Code, Failure> {
    let agent = target::find(&options.target, None).await?;
    follow(&agent, &options.following, agent.client.subscribe(&options.task)).await
}

/// `longshore asks answer`.
pub(crate) async fn answer(options: &AnswerAsk) -> Result<Code, Failure> {
    let agent = target::find(&options.target, None).await?;
    let task = agent.client.get(&options.task).await?;
    let ask = Ask::of(&task).ok_or_else(|| {
        let state = task.status.state.map_or("in no known state", words::word);
        Failure::usage(format!("the task {} asks nothing: it is {state}", task.id))
    })?;
    let message = ask.answered(&task, &options.answer);
    let mut follower = Follower::new(&agent, &options.following)?;
    match &options.ask {
        Some(wanted) if !ask.is(wanted) => {
            let text =
                format!("The ask {wanted} is not open any more, and was not answered. The agent asks now:");
            follower.renderer.printer.line(Style::Bad, &text);
            return Ok(follower.unanswered(&task, &ask));
        }
        Some(_) => {}
        None => follower.renderer.printer.line(Style::Ask, &ask.text),
    }
    follower.answered.insert(ask.key.clone());
    follower.run(agent.client.stream(message)).await
}

/// Prints the task of a stream until the task ends, or until it waits for an answer that nobody gives on this terminal.
pub(crate) async fn follow(
    agent: &Agent,
    following: &Following,
    opening: impl Future<Output = longshore_client::Result<TaskStream>>,
) -> Result<Code, Failure> {
    Follower::new(agent, following)?.run(opening).await
}

struct Follower<'a> {
    agent: &'a Agent,
    following: &'a Following,
    renderer: Renderer,
    signals: Signals,
    /// The keys of the asks that this command has answered.
    answered: HashSet<String>,
}

/// What the command must handle next.
enum Step {
    Event(Box<Event>),
    End,
    Signal(Ended),
}

/// The result of prompting a person.
enum Prompted {
    Answer(String),
    /// Standard input has ended.
    Nothing,
    Canceled,
    Left,
}

impl<'a> Follower<'a> {
    fn new(agent: &'a Agent, following: &'a Following) -> Result<Self, Failure> {
        let signals = Signals::catch()
            .map_err(|error| Failure::new(Code::Failed, format!("cannot catch signals: {error}")))?;
        let renderer = Renderer::new(following.output);
        Ok(Self { agent, following, renderer, signals, answered: HashSet::new() })
    }

    async fn run(
        mut self,
        opening: impl Future<Output = longshore_client::Result<TaskStream>>,
    ) -> Result<Code, Failure> {
        let mut stream = tokio::select! {
            stream = opening => stream?,
            _ = self.signals.next() => {
                let text = "interrupted before the agent answered; it may have received the message";
                return Err(Failure::new(Code::Left, text));
            }
        };
        let done = self.follow(&mut stream).await;
        self.renderer.printer.clear_status();
        match done {
            Ok(code) => {
                self.renderer.finish(stream.task());
                Ok(code)
            }
            Err(failure) => {
                self.renderer.printer.end_answer();
                self.renderer.printer.end_aside();
                let advice = self.renderer.task().map(|task| self.come_back(task));
                Err(advice.iter().fold(failure, |failure, advice| failure.with_advice(advice)))
            }
        }
    }

    async fn follow(&mut self, stream: &mut TaskStream) -> Result<Code, Failure> {
        loop {
            let event = match self.step(stream).await? {
                Step::Event(event) => *event,
                Step::End => return Ok(Code::of_state(self.renderer.state())),
                Step::Signal(ended) => {
                    if self.interrupted(ended).await? {
                        continue;
                    }
                    return Ok(Code::Left);
                }
            };
            self.renderer.event(&event);
            let state = match &event {
                Event::Task(task) => task.status.state,
                Event::StatusUpdate(update) => update.status.state,
                Event::Message(_) | Event::ArtifactUpdate(_) => continue,
            };
            match state {
                Some(TaskState::InputRequired) => {
                    if let Some(code) = self.asked(stream).await? {
                        return Ok(code);
                    }
                }
                Some(TaskState::AuthRequired) => {
                    let message = stream.task().and_then(|task| task.status.message.as_ref());
                    let text = message.map(Message::text).filter(|text| !text.is_empty());
                    let text = text.as_deref().unwrap_or("The agent waits for credentials.");
                    self.renderer.printer.line(Style::Bad, text);
                    return Ok(Code::Auth);
                }
                _ => {}
            }
        }
    }

    /// Waits for the next event or signal. Updates the elapsed time meanwhile.
    async fn step(&mut self, stream: &mut TaskStream) -> Result<Step, Failure> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await;
        let next = stream.next();
        tokio::pin!(next);
        loop {
            tokio::select! {
                biased;
                ended = self.signals.next() => return Ok(Step::Signal(ended)),
                event = &mut next => {
                    return Ok(event?.map_or(Step::End, |event| Step::Event(Box::new(event))));
                }
                _ = tick.tick() => self.renderer.tick(),
            }
        }
    }

    /// Handles an ask of the agent. `None`: the command goes on. Otherwise it ends with this code.
    async fn asked(&mut self, stream: &mut TaskStream) -> Result<Option<Code>, Failure> {
        let Some(id) = self.renderer.task().map(str::to_owned) else { return Ok(None) };
        loop {
            // If several asks are open, the task names the oldest. If the agent does not let clients read the task, use the
            // stream's.
            let task = match (self.agent.client.get(&id).await, stream.task()) {
                (Ok(task), _) => task,
                (Err(_), Some(task)) => task.clone(),
                (Err(error), None) => return Err(error.into()),
            };
            let Some(ask) = Ask::of(&task).filter(|ask| !self.answered.contains(&ask.key)) else {
                return Ok(None);
            };
            let typed = match self.following.approve {
                Some(approve) if ask.is_permission() => {
                    let text = format!("{}\n{}", ask.text, approve.word());
                    self.renderer.printer.line(Style::Dim, &text);
                    approve.word().to_owned()
                }
                _ if self.following.output == OutputFormat::Text && stdin::is_interactive() => {
                    match self.prompt(&ask).await? {
                        Prompted::Answer(typed) => typed,
                        Prompted::Nothing => return Ok(Some(self.unanswered(&task, &ask))),
                        Prompted::Canceled => return Ok(None),
                        Prompted::Left => return Ok(Some(Code::Left)),
                    }
                }
                _ => return Ok(Some(self.unanswered(&task, &ask))),
            };
            match self.send(stream, ask.answered(&task, &typed)).await? {
                None => {
                    self.answered.insert(ask.key);
                    return Ok(None);
                }
                Some(refusal) if stdin::is_interactive() && self.following.approve.is_none() => {
                    self.renderer.printer.line(Style::Bad, &refusal);
                }
                Some(refusal) => return Err(Failure::new(Code::InputRequired, refusal)),
            }
        }
    }

    /// Sends an answer. `Some`: the agent refused it, with this message.
    async fn send(&mut self, stream: &mut TaskStream, message: Outgoing) -> Result<Option<String>, Failure> {
        match stream.send(message).await {
            Ok(()) => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidRequest => {
                Ok(Some(refused_option(error.message()).unwrap_or_else(|| error.message().to_owned())))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Prints the ask, and reads the answer of the person.
    async fn prompt(&mut self, ask: &Ask) -> Result<Prompted, Failure> {
        let printer = &mut self.renderer.printer;
        printer.line(Style::Ask, &ask.text);
        for (index, (id, name)) in ask.options.iter().enumerate() {
            let shown = if id == name { id.clone() } else { format!("{id} ({name})") };
            printer.line(Style::Plain, &format!("  {}. {shown}", index + 1));
        }
        let mut lines = Vec::new();
        while lines.len() < ask.lines() {
            self.renderer.printer.aside(Style::Ask, "> ");
            let line = tokio::select! {
                line = stdin::line() => line,
                ended = self.signals.next() => {
                    self.renderer.printer.end_aside();
                    let is_canceled = self.interrupted(ended).await?;
                    return Ok(if is_canceled { Prompted::Canceled } else { Prompted::Left });
                }
            };
            self.renderer.printer.typed();
            match line {
                None => return Ok(Prompted::Nothing),
                Some(line) if line.is_empty() => {}
                Some(line) => lines.push(line),
            }
        }
        Ok(Prompted::Answer(lines.join("\n")))
    }

    /// Prints the ask, and the command with which it can be answered later.
    fn unanswered(&mut self, task: &Task, ask: &Ask) -> Code {
        let printer = &mut self.renderer.printer;
        printer.line(Style::Ask, &ask.text);
        let command = ask.command(task, &self.agent.flags);
        printer.line(Style::Plain, &format!("To answer later: {command}"));
        Code::InputRequired
    }

    /// Cancels the task after Ctrl-C, unless the person presses it again. Returns false if the task goes on and the command must
    /// end.
    async fn interrupted(&mut self, ended: Ended) -> Result<bool, Failure> {
        let Some(task) = self.renderer.task().map(str::to_owned) else {
            let text = "Interrupted before the agent named its task. The agent may work on the message.";
            self.renderer.printer.line(Style::Plain, text);
            return Ok(false);
        };
        let is_canceled = match ended {
            Ended::ByPerson => {
                let text = "Canceling the task. Press Ctrl-C again to leave it running.";
                self.renderer.printer.line(Style::Dim, text);
                tokio::select! {
                    canceled = cancel(&self.agent.client, &task) => canceled?,
                    _ = self.signals.next() => false,
                }
            }
            Ended::BySystem => false,
        };
        if !is_canceled {
            let text = self.come_back(&task);
            self.renderer.printer.line(Style::Plain, &text);
        }
        Ok(is_canceled)
    }

    fn come_back(&self, task: &str) -> String {
        let task = output::shell_word(task);
        format!("The task may go on. To follow it: longshore tasks watch {task}{}", self.agent.flags)
    }
}

/// Cancels a task after [`SECOND_THOUGHT`]. Also returns true if the task has just ended by itself.
async fn cancel(client: &Client, task: &str) -> Result<bool, Failure> {
    tokio::time::sleep(SECOND_THOUGHT).await;
    match client.cancel(task).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::TaskNotCancelable => Ok(true),
        Err(error) => Err(error.into()),
    }
}
