//! The commands that call an agent.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ConfigFile, DataDirFlags};

/// Selects the agent to call.
#[derive(Debug, Args)]
pub struct Target {
    /// The URL of an agent or of its card [default: the gateway of this directory].
    ///
    /// The credential for it is in the environment (`A2A_CLIENT_BEARER_TOKEN`, `A2A_CLIENT_BASIC_AUTH` or
    /// `A2A_CLIENT_API_KEY`), or in the file of --token-file.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// A file with the bearer token for the agent.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: DataDirFlags,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON document at the end, in the format of A2A 1.0.
    Json,
    /// One line of JSON for each event, in the format of A2A 1.0.
    Jsonl,
}

/// How a task is followed.
#[derive(Debug, Args)]
pub struct Following {
    /// How to print the task.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    /// Answer every permission request with this word.
    #[arg(long, value_name = "ANSWER")]
    pub approve: Option<Approve>,
}

/// The answer to every permission request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Approve {
    Once,
    Always,
    Reject,
}

impl Approve {
    pub fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Always => "always",
            Self::Reject => "reject",
        }
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "longshore call [OPTIONS] [URL] TEXT")]
pub struct Call {
    /// The text to send; `-` reads it from standard input. A URL before it names the agent.
    #[arg(value_name = "TEXT")]
    pub words: Vec<String>,
    /// Send this file too. Can be given several times.
    #[arg(long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Continue the conversation with this id.
    #[arg(long, value_name = "ID")]
    pub context: Option<String>,
    /// Continue the conversation of your newest task.
    #[arg(long = "continue", conflicts_with = "context")]
    pub continues: bool,
    /// The directory in which the agent works.
    #[arg(long, value_name = "PATH")]
    pub directory: Option<String>,
    /// The model, as provider/model.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The mode of the agent, such as `plan`. OpenCode calls it an agent.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Tasks {
    #[command(subcommand)]
    pub command: TasksCommand,
}

#[derive(Debug, Subcommand)]
pub enum TasksCommand {
    /// List your tasks, the newest first.
    List(ListTasks),
    /// Print what a task says so far, and its state.
    Get(OneTask),
    /// Cancel a task.
    Cancel(OneTask),
    /// Follow a task to its end.
    Watch(WatchTask),
    /// Let the agent call a webhook when a task changes, or list or remove the webhooks of a task.
    Notify(NotifyTask),
}

#[derive(Debug, Args)]
pub struct ListTasks {
    /// Only the tasks of this conversation.
    #[arg(long, value_name = "ID")]
    pub context: Option<String>,
    /// How many tasks to list.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub limit: u32,
    /// How to print the list. `jsonl` is one task on each line.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct OneTask {
    /// The id of the task.
    pub task: String,
    /// How to print the task.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct WatchTask {
    /// The id of the task.
    pub task: String,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct NotifyTask {
    /// The id of the task.
    pub task: String,
    /// The URL that the agent shall call. Without it, the webhooks of the task are listed.
    #[arg(value_name = "URL")]
    pub webhook: Option<String>,
    /// A file with a token that the agent sends with each call, so that the webhook knows that the call is genuine.
    #[arg(long, value_name = "FILE", requires = "webhook")]
    pub webhook_token_file: Option<PathBuf>,
    /// Remove the webhook with this id.
    #[arg(long, value_name = "ID", conflicts_with = "webhook")]
    pub remove: Option<String>,
    /// How to print the webhooks. `jsonl` is one on each line.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Asks {
    #[command(subcommand)]
    pub command: AsksCommand,
}

#[derive(Debug, Subcommand)]
pub enum AsksCommand {
    /// List what agents ask you: permissions and questions that wait for an answer.
    List(ListAsks),
    /// Answer what the agent asks on a task, and follow the task to its end.
    Answer(AnswerAsk),
}

#[derive(Debug, Args)]
pub struct ListAsks {
    /// How to print the list. `jsonl` is one task on each line.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct AnswerAsk {
    /// The id of the task that asks.
    pub task: String,
    /// `once`, `always`, `reject` or an option of a permission request; for a question an option or your own words.
    pub answer: String,
    /// Answer only the ask with this id, which the list of asks names. The agent may ask something else by now.
    #[arg(long, value_name = "ID")]
    pub ask: Option<String>,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Mcp {
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Card {
    /// The URL of an agent or of its card [default: the gateway of this directory].
    #[arg(value_name = "URL")]
    pub place: Option<String>,
    /// The longer card for callers with a credential.
    #[arg(long)]
    pub extended: bool,
    /// How to print the card.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    #[command(flatten)]
    pub target: Target,
}
