//! The agent that the gateway serves instead of OpenCode over HTTP: `--agent`, or `[[agents]]` in the file.

mod limits;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use longshore_agent_acp::connection::Role;
use longshore_agent_acp::schema::{McpServer, NamedValue, RemoteKind};
use longshore_agent_acp::{FileAccess, process};
use serde_json::Value;

pub use self::limits::AgentLimits;
use super::entry::Table;
use super::environment::Environment;
use super::presets::{self, Preset};
use super::problem::{Problem, Source};
use super::read::{Reader, Written};
use super::table::{AGENT, AGENTS};
use super::{ProcessContext, command_line, paths};

/// An agent that speaks ACP.
#[derive(Clone)]
pub struct AcpPlan {
    /// The name of the agent for callers. It is also part of the name of the data directory.
    pub name: String,
    pub preset: Option<&'static Preset>,
    /// The program. A bare name is searched on the PATH.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The whole environment of the agent.
    pub environment: BTreeMap<OsString, OsString>,
    pub mcp_servers: Vec<McpServer>,
    /// The access to files that Longshore gives the agent on its request.
    pub client_files: FileAccess,
    /// Whether Longshore runs commands for the agent on its request.
    pub client_terminals: bool,
    pub auth_method: Option<String>,
    pub mode: Option<String>,
    pub model: Option<String>,
    /// The options (mode, model) that callers may not choose.
    pub pinned: Vec<Role>,
    /// Whether callers may not choose any other option of the agent either.
    pub pins_config: bool,
    /// Whether the operator has confirmed that the agent starts a separate MCP server for each session.
    pub mcp_per_session: bool,
    pub limits: AgentLimits,
}

impl AcpPlan {
    /// The name of the agent for people.
    pub fn title(&self) -> &str {
        self.preset.filter(|preset| preset.name == self.name).map_or(&self.name, |preset| preset.title)
    }

    /// Whether the agent is OpenCode, even if its command line is no preset.
    pub fn is_opencode(&self) -> bool {
        let preset = self.preset.map(|preset| preset.command[0]);
        preset == Some("opencode") || self.program.file_stem() == Some(OsStr::new("opencode"))
    }
}

/// Leaves out arguments, variables and headers, because they may be secrets.
impl fmt::Debug for AcpPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcpPlan")
            .field("name", &self.name)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// The configured agent, and the workspace that its table in the file names.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) source: Source,
    pub(super) plan: AcpPlan,
    pub(super) workspace: Option<PathBuf>,
}

/// Reads the agent from `--agent`, its variable or the file. `None`: OpenCode over HTTP is served, or a problem was found.
pub(super) fn read(reader: &mut Reader<'_>, context: &ProcessContext) -> Option<Configured> {
    let written = reader.written(&AGENTS)?;
    if matches!(written.source, Source::File { .. }) {
        return from_file(reader, context, &written);
    }
    match named(&written.text, context) {
        Ok(plan) => Some(Configured { source: written.source, plan, workspace: None }),
        Err(reason) => {
            reader.problem(Problem::rule(&written.source, &AGENTS, reason));
            None
        }
    }
}

/// The agent for a preset or a command line. Fails if its program does not exist.
pub fn named(text: &str, context: &ProcessContext) -> Result<AcpPlan, String> {
    let command = Command::parse(text, &context.directory)?;
    // A preset that is not installed is reported at its start, with the command that installs it.
    if command.preset.is_none()
        && paths::find_program(&context.environment, &context.directory, &command.program).is_none()
    {
        let word = text.trim();
        let hint = match (command.arguments.is_empty(), AGENT.flag) {
            (true, Some(flag)) => format!("; for an agent of OpenCode's own, use --{flag} {word}"),
            _ => String::new(),
        };
        return Err(format!(
            "{:?} is neither a preset ({}) nor a program that is found{hint}",
            command.program.display().to_string(),
            presets::names()
        ));
    }
    Ok(command.plan(&context.environment, &BTreeMap::new()))
}

/// Whether an `[[agents]]` table contains values that may be secrets: variables, headers, or arguments whose name suggests a
/// secret.
pub(super) fn holds_secret(text: &str) -> bool {
    let has_values = |fields: &Value| {
        let is_filled = |name: &str| fields[name].as_object().is_some_and(|values| !values.is_empty());
        is_filled("env") || is_filled("headers") || passes_secret(&fields["command"])
    };
    let servers =
        |entry: &Value| entry["mcp_servers"].as_array().is_some_and(|all| all.iter().any(has_values));
    let entries: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    entries.iter().any(|entry| has_values(entry) || servers(entry))
}

/// The words that name a secret.
const SECRETS: [&str; 10] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "authtoken",
    "key",
    "password",
    "secret",
    "secretkey",
    "token",
];

/// Whether a word in the name of an argument suggests a secret, as in `--api-key=x`, `--token x` and `API_KEY=x`. A number as value
/// is no secret, because it is a number of tokens.
fn passes_secret(command: &Value) -> bool {
    let words = match command {
        Value::Array(words) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(line) => command_line::split(line).unwrap_or_default(),
        _ => Vec::new(),
    };
    let is_named = |name: &str| {
        // A capital inside a word begins a new word, as in `clientSecret`.
        let (mut spaced, mut was_lower) = (String::new(), false);
        for letter in name.chars() {
            if was_lower && letter.is_uppercase() {
                spaced.push('-');
            }
            was_lower = letter.is_lowercase();
            spaced.extend(letter.to_lowercase());
        }
        let mut words = spaced.split(|c: char| !c.is_alphanumeric());
        words.any(|word| SECRETS.contains(&word.strip_suffix('s').unwrap_or(word)))
    };
    let is_value = |value: &str| !value.is_empty() && value.parse::<f64>().is_err();
    let next = words.iter().skip(1).map(Some).chain([None]);
    words.iter().zip(next).any(|(word, next)| match (word.split_once('='), next) {
        (Some((name, value)), _) => is_named(name) && is_value(value),
        (None, Some(value)) => {
            word.starts_with('-') && is_named(word) && !value.starts_with('-') && is_value(value)
        }
        (None, None) => false,
    })
}

/// A command, split into words.
struct Command {
    program: PathBuf,
    arguments: Vec<String>,
    preset: Option<&'static Preset>,
}

impl Command {
    /// Parses a preset or a command line.
    fn parse(text: &str, here: &Path) -> Result<Self, String> {
        if let Some(preset) = presets::find(text.trim()) {
            return Self::of_words(preset.command.iter().map(|word| (*word).to_owned()).collect(), here);
        }
        Self::of_words(
            command_line::split(text).map_err(|reason| format!("cannot be split: {reason}"))?,
            here,
        )
    }

    fn of_words(mut words: Vec<String>, here: &Path) -> Result<Self, String> {
        let preset = presets::of_command(&words);
        if words.first().is_none_or(String::is_empty) {
            return Err("names no program".to_owned());
        }
        let program = paths::program(here, PathBuf::from(words.remove(0)));
        Ok(Self { program, arguments: words, preset })
    }

    /// The plan of the agent. `gateway`: the gateway's environment. `named`: the variables that the configuration sets.
    fn plan(self, gateway: &Environment, named: &BTreeMap<String, String>) -> AcpPlan {
        let own = |name: &str| self.preset.is_some_and(|preset| preset.takes(name));
        let mut variables: BTreeMap<String, String> = gateway
            .iter()
            .filter(|(name, _)| own(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        variables.extend(named.clone());
        let inherited = gateway.iter().map(|(name, value)| (name.into(), value.into()));
        let stem = self.program.file_stem().unwrap_or_default().to_string_lossy();
        let name: String = stem.chars().filter(|c| is_of_name(*c)).take(MAX_NAME).collect();
        AcpPlan {
            name: match self.preset {
                Some(preset) => preset.name.to_owned(),
                None if name.is_empty() => "agent".to_owned(),
                None => name,
            },
            preset: self.preset,
            program: self.program,
            arguments: self.arguments,
            environment: process::environment(inherited, &variables),
            mcp_servers: Vec::new(),
            client_files: FileAccess::Off,
            client_terminals: false,
            auth_method: None,
            mode: None,
            model: None,
            pinned: Vec::new(),
            pins_config: false,
            mcp_per_session: false,
            limits: AgentLimits::default(),
        }
    }
}

/// The longest name of an agent. It is limited because the name is part of the name of a directory.
const MAX_NAME: usize = 40;

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
}

/// The word in `pin` that stands for all options besides the mode and the model.
const PIN_CONFIG: &str = "config";

const FIELDS: [&str; 20] = [
    "name",
    "kind",
    "command",
    "env",
    "pass_env",
    "workspace",
    "auth_method",
    "mode",
    "model",
    "pin",
    "pin_config",
    "idle_stop",
    "client_files",
    "client_terminals",
    "start_timeout",
    "cancel_timeout",
    "open_sessions",
    "memory_limit",
    "mcp_servers",
    "mcp_per_session",
];

const MCP_FIELDS: [&str; 6] = ["name", "command", "env", "type", "url", "headers"];

fn from_file(reader: &mut Reader<'_>, context: &ProcessContext, written: &Written) -> Option<Configured> {
    let list: Vec<Value> = serde_json::from_str(&written.text).unwrap_or_default();
    let reason = match list.as_slice() {
        [] => "must have one entry",
        [Value::Object(fields)] => {
            let mut table =
                Table { reader, written, at: format!("{}[0]", AGENTS.key), fields, is_good: true };
            return table.agent(context);
        }
        [_] => "must be a table of fields",
        _ => "there are several entries; one gateway serves one agent, and more than one agent comes later",
    };
    reader.problem(Problem::rule(&written.source, &AGENTS, reason));
    None
}

impl Table<'_, '_> {
    /// Reads the table. Reads every field even after a problem, so that all problems are shown at once.
    fn agent(&mut self, context: &ProcessContext) -> Option<Configured> {
        self.check_names(&FIELDS);
        let name = self.agent_name();
        match self.required("kind").as_deref() {
            None | Some("acp") => {}
            Some(_) => self.wrong("kind", "must be acp"),
        }
        let command = self.command(&context.directory);
        let variables = self.variables(&context.environment);
        let workspace = self.text("workspace").map(PathBuf::from);
        let (auth_method, mode, model) = (self.text("auth_method"), self.text("mode"), self.text("model"));
        let pinned = self.pinned();
        let limits = self.limits();
        let (client_files, client_terminals) = (self.client_files(), self.switch("client_terminals"));
        let mcp_servers = self.mcp_servers(&context.directory);
        let mcp_per_session = self.switch("mcp_per_session");
        let mut plan = command?.plan(&context.environment, &variables?);
        plan.name = name?;
        let (pinned, pins_config) = pinned?;
        plan = AcpPlan {
            auth_method,
            mode,
            model,
            pinned,
            pins_config,
            limits,
            client_files,
            client_terminals,
            mcp_servers: mcp_servers?,
            mcp_per_session,
            ..plan
        };
        Some(Configured { source: self.written.source.clone(), plan, workspace })
    }

    fn agent_name(&mut self) -> Option<String> {
        let name = self.required("name")?;
        if name.len() > MAX_NAME || !name.chars().all(is_of_name) {
            self.wrong("name", "must be at most 40 letters, digits, dots, hyphens and underscores");
            return None;
        }
        Some(name)
    }

    /// Reads the command: a list of words, or a text with a preset or a command line.
    fn command(&mut self, here: &Path) -> Option<Command> {
        let command = match self.fields.get("command") {
            Some(Value::Array(_)) => Command::of_words(self.words("command")?, here),
            _ => Command::parse(&self.required("command")?, here),
        };
        command.map_err(|reason| self.wrong("command", &reason)).ok()
    }

    /// The variables that the file sets, and those that it passes on from the gateway's environment.
    fn variables(&mut self, gateway: &Environment) -> Option<BTreeMap<String, String>> {
        let (values, passed) = (self.values("env"), self.words("pass_env"));
        let mut variables: BTreeMap<String, String> = passed?
            .into_iter()
            .filter_map(|name| gateway.get(&name).map(str::to_owned).map(|value| (name, value)))
            .collect();
        variables.extend(values?);
        Some(variables)
    }

    /// Which of mode and model callers may not choose, and whether they may choose none of the other options either. If the file
    /// pins anything and does not set `pin_config`, the other options are pinned too: files that pin are older than the choice of
    /// options, and another option may undo a mode.
    fn pinned(&mut self) -> Option<(Vec<Role>, bool)> {
        let roles = [Role::Mode, Role::Model];
        let mut words = self.words("pin")?;
        let names_config = words.iter().any(|word| word == PIN_CONFIG);
        let pins_config = match self.fields.get("pin_config") {
            None => !words.is_empty(),
            Some(_) => self.switch("pin_config"),
        };
        if names_config && !pins_config {
            self.wrong("pin_config", "must not be false if pin holds config; leave one of them out");
        }
        words.retain(|word| word != PIN_CONFIG);
        let pinned: Option<Vec<Role>> =
            words.iter().map(|word| roles.into_iter().find(|role| role.as_str() == word)).collect();
        if pinned.is_none() {
            self.wrong("pin", "must be a list of the words mode, model and config");
        }
        Some((pinned?, pins_config))
    }

    fn client_files(&mut self) -> FileAccess {
        match self.text("client_files").as_deref() {
            None | Some("off") => FileAccess::Off,
            Some("read") => FileAccess::Read,
            Some("read-write") => FileAccess::ReadWrite,
            Some(_) => {
                self.wrong("client_files", "must be off, read or read-write");
                FileAccess::Off
            }
        }
    }

    /// Reads a switch. A missing one is false.
    fn switch(&mut self, name: &str) -> bool {
        match self.fields.get(name) {
            None => false,
            Some(Value::Bool(is_on)) => *is_on,
            Some(_) => {
                self.wrong(name, "must be true or false");
                false
            }
        }
    }

    fn mcp_servers(&mut self, here: &Path) -> Option<Vec<McpServer>> {
        let list = match self.fields.get("mcp_servers") {
            None => return Some(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.wrong("mcp_servers", "must be a list of tables");
                return None;
            }
        };
        let mut servers = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let at = format!("mcp_servers[{index}]");
            let Value::Object(fields) = value else {
                self.wrong(&at, "must be a table of fields");
                continue;
            };
            let at = format!("{}.{at}", self.at);
            let mut table = Table { reader: self.reader, written: self.written, at, fields, is_good: true };
            servers.push(table.mcp_server(here));
        }
        servers.into_iter().collect()
    }

    fn mcp_server(&mut self, here: &Path) -> Option<McpServer> {
        self.check_names(&MCP_FIELDS);
        let name = self.required("name");
        if !self.fields.contains_key("url") {
            let (command, env) = (self.command(here), self.values("env"));
            let Command { program, arguments, .. } = command?;
            let command = program.to_string_lossy().into_owned();
            return Some(McpServer::Stdio { name: name?, command, args: arguments, env: listed(env?) });
        }
        if self.fields.contains_key("command") {
            self.wrong("command", "must not be given together with url");
        }
        let (url, headers) = (self.required("url"), self.values("headers"));
        let kind = match self.text("type").as_deref() {
            None | Some("http") => RemoteKind::Http,
            Some("sse") => RemoteKind::Sse,
            Some(_) => {
                self.wrong("type", "must be http or sse");
                return None;
            }
        };
        Some(McpServer::Remote { r#type: kind, name: name?, url: url?, headers: listed(headers?) })
    }

    /// Reads a list of texts. A missing one is empty. `None`: a problem was found.
    fn words(&mut self, name: &str) -> Option<Vec<String>> {
        let Some(value) = self.fields.get(name) else { return Some(Vec::new()) };
        let words = value
            .as_array()
            .and_then(|list| list.iter().map(|word| word.as_str().map(str::to_owned)).collect());
        if words.is_none() {
            self.wrong(name, "must be a list of texts");
        }
        words
    }

    /// Reads a table of texts. A missing one is empty. `None`: a problem was found. Messages show no value, because it may be a
    /// secret.
    fn values(&mut self, name: &str) -> Option<BTreeMap<String, String>> {
        let Some(value) = self.fields.get(name) else { return Some(BTreeMap::new()) };
        let pair = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let values = value.as_object().and_then(|values| values.iter().map(pair).collect());
        if values.is_none() {
            self.wrong(name, "must be a table of names and texts");
        }
        values
    }
}

fn listed(values: BTreeMap<String, String>) -> Vec<NamedValue> {
    values.into_iter().map(|(name, value)| NamedValue { name, value }).collect()
}
