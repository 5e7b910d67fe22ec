//! `longshore agents`: lists the presets and tries out an agent.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use longshore_agent_acp::connection::Role;
use longshore_agent_acp::{AcpAgent, AgentFacts, Capabilities};
use longshore_engine::Tasks;
use longshore_engine::port::{Agent as _, Input, NewSession, Session, TurnRequest};
use longshore_model::{
    AgentEvent, Answer, BlockKind, Outcome, PermissionReply, PromptId, PromptOptions, Result, TaskId,
};
use tokio::time::{Instant, sleep, timeout};

use crate::config::agents::AcpPlan;
use crate::config::plan::AgentPlan;
use crate::config::presets::{self, Preset};
use crate::config::{Flags, Plan, ProcessContext, paths, table};
use crate::signals::Signals;
use crate::{acp_upstream, cli, output};

/// How often a long step prints that it is still running.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// How long the trial turn may take.
const TURN_TIMEOUT: Duration = Duration::from_mins(5);

/// How long the program waits after the trial turn for the agent to name its commands, and how often it checks for them.
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The most characters of the reply that are printed.
const MOST_SAID: usize = 60;

const TRIAL_PROMPT: &str = "Say hello, and use no tools.";

/// Lists the presets.
pub(crate) fn list(context: &ProcessContext) {
    let rows: Vec<[String; 4]> = presets::ALL.iter().map(|preset| row(preset, context)).collect();
    let head = ["preset", "command", "tested", "found"].map(str::to_owned);
    let width = |column: usize| {
        rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; 3] = std::array::from_fn(width);
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        output::print(format_args!("{line}{}", row[3]));
    }
    output::print(
        "\n`longshore serve --agent PRESET` serves one of them. `longshore agents check PRESET` tries it with a short prompt.",
    );
}

fn row(preset: &Preset, context: &ProcessContext) -> [String; 4] {
    let found =
        paths::find_program(&context.environment, &context.directory, preset.command[0].as_ref()).is_some();
    [
        preset.name.to_owned(),
        preset.command.join(" "),
        if preset.is_tested { "yes" } else { "no" }.to_owned(),
        match (found, preset.install) {
            (true, _) => "yes".to_owned(),
            (false, Some(command)) => format!("no; to install it, run `{command}`"),
            (false, None) => "no".to_owned(),
        },
    ]
}

/// Flags that select the agent to try: the configured one, or else the given preset or command line.
pub(crate) fn flags(options: &cli::CheckAgent, configured: Option<&Plan>) -> Flags {
    let mut flags = options.settings.0.clone();
    let is_configured =
        |plan: &Plan| matches!(&plan.agent, AgentPlan::Acp(agent) if agent.name == options.agent);
    if !configured.is_some_and(is_configured) {
        flags.insert(table::AGENTS.key, options.agent.clone());
    }
    flags
}

/// Tries out the agent of the plan. Exit code 0 means that it works.
pub(crate) async fn check(plan: &Plan) -> anyhow::Result<ExitCode> {
    let AgentPlan::Acp(agent) = &plan.agent else { anyhow::bail!("no agent that speaks ACP is configured") };
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let command =
        std::iter::once(agent.program.to_string_lossy().into_owned()).chain(agent.arguments.clone());
    let command: Vec<String> = command.map(|word| output::shell_word(&word)).collect();
    output::print(format_args!("Checking {} (`{}`) ...", agent.title(), command.join(" ")));
    let tasks = Tasks::new();
    let running = AcpAgent::new(acp_upstream::config(plan, agent), &tasks);
    let works = tokio::select! {
        works = steps(plan, agent, &running) => Some(works),
        _ = signals.next() => None,
    };
    running.stop().await;
    tasks.stop().await;
    output::print(match works {
        Some(true) => "\nThe agent works.",
        Some(false) => "\nThe agent does not work.",
        None => "\nThe check was interrupted.",
    });
    Ok(if works == Some(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all steps of the trial. Returns whether all of them worked.
async fn steps(plan: &Plan, agent: &AcpPlan, running: &AcpAgent) -> bool {
    let Some(facts) = step("handshake", "ok", running.start()).await else {
        if let Some(command) = agent.preset.and_then(|preset| preset.install) {
            fact("install", format_args!("`{command}`"));
        }
        return false;
    };
    fact("version", acp_upstream::description(&facts));
    fact("sessions", sessions(facts.capabilities));
    fact("prompts", prompts(facts.capabilities));
    let methods = facts.auth_methods.iter().map(|method| method.id.as_str());
    fact("logins", listed(methods));
    let request = NewSession { directory: plan.workspace.to_string_lossy().into_owned(), title: None };
    let Some(session) = step("session", "ok", running.open_session(request)).await else { return false };
    offers(&running.facts().unwrap_or(facts));
    let said = step("trial turn", "", turn(running, session)).await;
    if said.is_some() {
        let commands = commands(running).await;
        fact("commands", listed(commands.iter().map(String::as_str)));
    }
    said.is_some()
}

/// The names of the agent's commands. Agents send them some time after a session was opened. An agent without commands sends
/// nothing, so this function waits for at most [`COMMANDS_TIMEOUT`].
async fn commands(running: &AcpAgent) -> Vec<String> {
    let until = Instant::now() + COMMANDS_TIMEOUT;
    loop {
        let session = running.facts().and_then(|facts| facts.session);
        let commands = session.into_iter().flat_map(|session| session.commands.unwrap_or_default().entries);
        let names: Vec<String> = commands.map(|command| command.name).collect();
        if !names.is_empty() || Instant::now() >= until {
            return names;
        }
        sleep(LOOK_EVERY).await;
    }
}

fn offers(facts: &AgentFacts) {
    for (name, role) in [("modes", Role::Mode), ("models", Role::Model)] {
        let choices = facts.choices(role);
        fact(name, listed(choices.iter().map(|choice| choice.id.as_str())));
    }
    let options = facts.session.iter().flat_map(|session| &session.config_options);
    fact("options", listed(options.map(|option| option.id.as_str())));
}

/// Runs one short turn. Returns the agent's reply.
async fn turn(agent: &AcpAgent, session: Session) -> Result<String> {
    let request = TurnRequest {
        task: TaskId::parse("trial").map_err(longshore_model::Error::internal)?,
        session: session.clone(),
        prompt: PromptId::parse("trial").map_err(longshore_model::Error::internal)?,
        input: vec![Input::Text(TRIAL_PROMPT.to_owned())],
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume: None,
        prompting: longshore_engine::port::Prompting::default(),
        trace: None,
    };
    let mut turn = agent.start_turn(request).await?;
    let following = async {
        let mut said = String::new();
        while let Some(event) = turn.events.recv().await {
            match event {
                AgentEvent::Text { block, text } if block.kind == BlockKind::Text => said.push_str(&text),
                AgentEvent::Asked(ask) => {
                    let reject = Answer::Permission { reply: PermissionReply::Reject, message: None };
                    agent.reply(&session, &ask, &reject).await?;
                }
                AgentEvent::Ended(outcome) => return ended(outcome, &said),
                _ => {}
            }
        }
        Err(longshore_model::Error::internal("the turn has no end"))
    };
    timeout(TURN_TIMEOUT, following).await.unwrap_or_else(|_| {
        Err(longshore_model::Error::new(
            longshore_model::ErrorKind::AgentUnavailable,
            format!("The turn did not end within {} s.", TURN_TIMEOUT.as_secs()),
        ))
    })
}

fn ended(outcome: Outcome, said: &str) -> Result<String> {
    let why = match outcome {
        Outcome::Completed { .. } => {
            let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let line: String = words.chars().take(MOST_SAID).collect();
            return Ok(format!("ok; the agent said {line:?}"));
        }
        Outcome::Failed(failure) | Outcome::AuthRequired(failure) => failure.message,
        Outcome::Canceled { reason } => reason,
        Outcome::Incomplete(_) => "The turn ended, and some of its text is missing.".to_owned(),
    };
    Err(longshore_model::Error::new(longshore_model::ErrorKind::AgentUnavailable, why))
}

/// Runs a step and prints its result: the text of the result, or `words` if the result has no text.
async fn step<T: Shown>(name: &str, words: &str, work: impl Future<Output = Result<T>>) -> Option<T> {
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    let result = loop {
        match timeout(REPORT_EVERY, work.as_mut()).await {
            Ok(result) => break result,
            Err(_) => output::progress(format_args!(
                "  {name}: no answer for {} s; still waiting ...",
                began.elapsed().as_secs()
            )),
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    match result {
        Ok(value) => {
            let text = value.shown().unwrap_or(words);
            fact(name, format_args!("{text} ({seconds:.1} s)"));
            Some(value)
        }
        Err(error) => {
            let cause = error.cause().map(|cause| format!(" ({cause})")).unwrap_or_default();
            fact(name, format_args!("failed after {seconds:.1} s: {error}{cause}"));
            None
        }
    }
}

/// A result of a step, which may have a text to print.
trait Shown {
    fn shown(&self) -> Option<&str> {
        None
    }
}

impl Shown for AgentFacts {}
impl Shown for Session {}
impl Shown for String {
    fn shown(&self) -> Option<&str> {
        Some(self)
    }
}

fn fact(name: &str, value: impl std::fmt::Display) {
    output::print(format_args!("  {name:<11} {}", output::harmless(&value.to_string())));
}

fn sessions(can: Capabilities) -> String {
    let all = [
        (can.load, "load"),
        (can.resume, "resume"),
        (can.list, "list"),
        (can.fork, "fork"),
        (can.close, "close"),
        (can.delete, "delete"),
    ];
    listed(all.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name))
}

fn prompts(can: Capabilities) -> String {
    let all =
        [(true, "text"), (can.image, "image"), (can.audio, "audio"), (can.embedded_context, "resource")];
    listed(all.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name))
}

/// Joins names to a list for people. The list is cut, because some agents offer dozens of commands.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 8;
    let names: Vec<&str> = names.into_iter().collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST => format!("{}, and {} more", names[..MOST].join(", "), count - MOST),
        _ => names.join(", "),
    }
}
