//! The command line. The flags of the settings come from the table of settings.

pub mod client;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, ValueHint};

use crate::config::Flags;
use crate::config::setting::{Fallback, Kind, Setting};
use crate::config::table;

/// The OpenCode releases that this version was tested with.
pub const TESTED_OPENCODE: &[&str] = &["1.18.33"];

const SECRETS: &str = "\
Credentials (environment or file only, since other users can see a command line):
  A2A_BEARER_TOKEN             one bearer token, for the principal `default` [file: auth.bearer_token]
  IACCODE_A2A_API_KEY          one API key, for the principal `default` [file: auth.api_key]
  A2A_STATIC_AUTH_CREDENTIALS  JSON list of credentials, each with its principal [file: auth.credentials]
  OPENCODE_AUTH_USERNAME       user name for --opencode-url [default: opencode] [file: opencode.auth_username]
  OPENCODE_AUTH_PASSWORD       password for --opencode-url [file: opencode.auth_password]
  OTEL_EXPORTER_OTLP_HEADERS   headers for --otlp-endpoint [file: trace.otlp_headers]
  LONGSHORE_KEYS               keys that seal the secrets of webhooks [default: a file in the data directory] [file: push.keys]

  With no credential set, a bearer token is generated on the first start, kept in the data directory, and shown on a terminal.

Agents that the agent may call (docs/peers.md; environment or file only):
  LONGSHORE_PEERS [file: peers]
      JSON list of agents that the agent may call by their names
  LONGSHORE_CALLS_ALLOW_URLS [file: calls.allow_urls]
      the model may also call agents by their URLs [default: false]
  A2A_CLIENT_ALLOWED_HOSTS [file: calls.allowed_hosts]
      hosts of such URLs, and of peers that get the credential below
  A2A_CLIENT_ALLOW_PRIVATE_HOSTS [file: calls.allow_private_hosts]
      such URLs may lead to private addresses [default: false]
  LONGSHORE_CALLS_AT_ONCE [file: calls.at_once]
      calls of one task at the same time [default: 4]
  LONGSHORE_CALLS_PER_TASK [file: calls.per_task]
      calls of one task in all [default: 20]
  LONGSHORE_CALLS_TIMEOUT [file: calls.timeout]
      how long one call may take [default: 3600]
  LONGSHORE_CALLS_MAX_RESULT_BYTES [file: calls.max_result_bytes]
      how much of a result the model gets [default: 131072]
  LONGSHORE_CALLS_MAX_ASKS [file: calls.max_asks]
      how often the called agent may ask [default: 10]
  LONGSHORE_CALLS_MAX_HOPS [file: calls.max_hops]
      over how many gateways agents may call each other [default: 4]
  LONGSHORE_CALLS_MAX_RETURNS [file: calls.max_returns]
      how often such a chain may come back to this gateway [default: 0]

Calls of other agents (`longshore call` and others; environment or file only):
  A2A_CLIENT_BEARER_TOKEN [file: client.bearer_token]
      bearer token for an agent that is named by its URL
  A2A_CLIENT_BASIC_AUTH [file: client.basic_auth]
      user:password for it, or the base64 of that
  A2A_CLIENT_API_KEY [file: client.api_key]
      API key for it
  A2A_CLIENT_TIMEOUT_SECONDS [file: client.timeout]
      how long an agent may take to respond [default: 30]
  A2A_CLIENT_CARD_FETCH_TIMEOUT_SECONDS [file: client.card_timeout]
      the same for its card [default: 5]
  A2A_CLIENT_SUPPORTED_TRANSPORTS [file: client.transports]
      bindings to use [default: JSONRPC,HTTP+JSON,GRPC]
  A2A_CLIENT_USE_CLIENT_PREFERENCE [file: client.use_client_preference]
      use them in this order [default: false]
  A2A_CLIENT_PROTOCOL_VERSION [file: client.protocol_version]
      only this version of A2A: 0.3 or 1.0
  A2A_CLIENT_POLLING_FALLBACK_ENABLED [file: client.polling]
      use the next four for agents without streams [default: false]
  A2A_CLIENT_POLLING_FALLBACK_INITIAL_INTERVAL_SECONDS [file: client.polling_initial]
      first interval [default: 0.5]
  A2A_CLIENT_POLLING_FALLBACK_MAX_INTERVAL_SECONDS [file: client.polling_longest]
      longest interval [default: 2]
  A2A_CLIENT_POLLING_FALLBACK_BACKOFF_MULTIPLIER [file: client.polling_factor]
      growth of the intervals [default: 2]
  A2A_CLIENT_POLLING_FALLBACK_TIMEOUT_SECONDS [file: client.polling_timeout]
      time in all [default: 10]
  A2A_CLIENT_CACHE_TTL_SECONDS [file: client.card_cache_lifetime]
      how long a card is kept [default: 900]
  A2A_CLIENT_CACHE_MAXSIZE [file: client.card_cache_size]
      how many cards are kept [default: 256]

docs/configuration.md, or `longshore settings`, describes every setting.";

static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!("{} (tested with OpenCode {})", env!("CARGO_PKG_VERSION"), TESTED_OPENCODE.join(", "))
});

/// A gateway that puts coding agents on the A2A network.
#[derive(Debug, Parser)]
#[command(
    name = "longshore",
    version = VERSION.as_str(),
    arg_required_else_help = true,
    after_help = "Run `longshore serve` in a project directory. It prints a URL and a first request."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Subcommands,
}

#[derive(Debug, Subcommand)]
pub enum Subcommands {
    /// Serve an A2A agent for a directory.
    ///
    /// Without --opencode-url, Longshore starts and supervises the `opencode` that is on the PATH, with its
    /// user's own configuration and models. SIGTERM leaves it running for the next start;
    /// Ctrl-C and `longshore stop` end it. With --agent, Longshore serves another agent, which ends with it.
    ///
    /// Each setting can also be given in the environment or in the configuration file, under the names shown.
    /// Flags override the environment, and the environment overrides the file.
    #[command(after_long_help = SECRETS)]
    Serve(Serve),
    /// Serve an A2A agent on the standard input and output, for the program that started this one.
    ///
    /// Each line is one JSON-RPC message of A2A 1.0 or 0.3, in both directions; docs/connections.md describes them. The log is on
    /// standard error. The parent needs no credential. At the end of the input Longshore exits, as after SIGTERM: tasks that are not
    /// over stay in the data directory, and the next start continues them. Takes the flags of `longshore serve`; those of the
    /// listeners have no effect.
    Stdio(Serve),
    /// Send a message to an agent, and show the answer as it comes.
    ///
    /// With one argument, the agent is the gateway that serves this directory. The answer goes to standard output, everything else
    /// to standard error. On a terminal you can answer what the agent asks; Ctrl-C cancels the task, and Ctrl-C twice leaves it
    /// running.
    ///
    /// Exit codes: 0: completed; 1: failed; 2: bad flags or configuration; 3: the agent waits for an answer; 4: canceled;
    /// 5: rejected; 6: a credential is missing or wrong; 7: the agent cannot be reached; 130: interrupted, and the task goes on.
    Call(client::Call),
    /// List, read, cancel and follow tasks. The exit codes are those of `longshore call`.
    Tasks(client::Tasks),
    /// List and answer what agents ask you. The exit codes are those of `longshore call`.
    Asks(client::Asks),
    /// Print the card of an agent. The exit codes are those of `longshore call`.
    Card(client::Card),
    /// Offer an agent to a program that uses tools over MCP on the standard input and output, such as an editor.
    ///
    /// The program starts this command and writes MCP messages, one on each line. They go to the gateway of this directory, or to the
    /// one at --url: a URL without a path gets /mcp. The gateway may restart meanwhile: messages are sent again for a minute, and a
    /// tool call that it has received is not made twice. docs/mcp.md has the configuration of an editor.
    Mcp(client::Mcp),
    /// Open OpenCode's own terminal interface on the OpenCode of the gateway of a directory.
    Attach(DataDirOptions),
    /// Look for what prevents the gateway of a directory from working, and say what to do.
    ///
    /// Checks the configuration, the data directory, the store, the disk, the limits of the system, the certificate, the clock, the gateway if it
    /// runs, its public URL, and the agent: its version, its event stream, and whether it can use a model. Takes the flags of
    /// `longshore serve`.
    ///
    /// Exit codes: 0: no problem; 1: there are problems; 2: bad flags or configuration.
    Doctor(Doctor),
    /// Run only the demo model: an OpenAI-compatible server that is scripted by the words of the prompt.
    DemoModel(DemoModel),
    /// End the OpenCode that an earlier `longshore serve` left running.
    Stop(DataDirOptions),
    /// Print the token that Longshore generated for a directory when it was first served.
    Token(DataDirOptions),
    /// Copy the tasks of a directory to a new directory, also while they are served.
    ///
    /// TARGET becomes a data directory with the token, the keys and a verified copy of the store as it was at one moment. The copy
    /// contains everything that a client received before the command began. `longshore serve --data-dir TARGET` serves the
    /// copy. It has no sessions of OpenCode, because OpenCode keeps them itself.
    Backup(Backup),
    /// Check whether the stored tasks of a directory are what was written. The gateway must not run.
    ///
    /// Names each damaged task and what is wrong with the file, and then ends with exit code 1. Changes nothing.
    Check(StoreOptions),
    /// Replace a damaged store with one that has everything that is whole. The gateway must not run.
    ///
    /// The damaged store is moved to a directory beside it, with a report, so the disk needs room for both. Of a damaged task the
    /// part is kept that its checksums confirm: a task whose end is there stays as it was, without its events; another one ends
    /// as failed, and its status says why. Each damaged task is named.
    ///
    /// Exit codes: 0: nothing is lost, or nothing was damaged; 1: the store cannot be repaired, and nothing was changed; 2: bad
    /// flags or configuration; 3: the store is repaired, and something is lost.
    Repair(StoreOptions),
    /// List the push notifications that were given up, send them again, or drop them. The gateway must not run.
    Push(Push),
    /// Replace the key that seals the secrets of callers in the store. The gateway must not run.
    Keys(Keys),
    /// List the agents that speak ACP and that `longshore serve --agent` knows by name, and whether each is installed.
    Agents(Agents),
    /// Print the completions of a shell: `eval "$(longshore completions bash)"`.
    Completions(Completions),
    /// Print the manual page of `longshore`, or write those of all commands to a directory.
    Man(Man),
    /// Print the reference of all settings, as Markdown.
    Settings,
    /// Print the reference of the methods that Longshore offers besides those of A2A, as Markdown.
    Methods,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Send the waiting messages of a restored backup to the agent. Without it they are held, because the gateway that made
    /// the backup may have sent them since then.
    #[arg(long)]
    pub resume_restored: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: SettingFlags,
}

#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: SettingFlags,
}

#[derive(Debug, Args)]
pub struct Agents {
    #[command(subcommand)]
    pub command: Option<AgentsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum AgentsCommand {
    /// Try an agent: start it, open a session, and send a short prompt. Exit code 1 if it does not work.
    Check(CheckAgent),
}

#[derive(Debug, Args)]
pub struct Push {
    #[command(subcommand)]
    pub command: PushCommand,
}

#[derive(Debug, Subcommand)]
pub enum PushCommand {
    /// List the dead letters: events that a receiver did not accept, and that are no longer tried.
    Dead(StoreOptions),
    /// Send dead letters again when the gateway next starts. A receiver drops what it knows by its `webhook-id`.
    Replay(DeadLetters),
    /// Forget dead letters.
    Drop(DeadLetters),
}

#[derive(Debug, Args)]
pub struct DeadLetters {
    /// The numbers that `longshore push dead` prints.
    #[arg(required_unless_present = "all", value_name = "NUMBER")]
    pub numbers: Vec<u64>,
    /// All dead letters.
    #[arg(long, conflicts_with = "numbers")]
    pub all: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: StoreFlags,
}

#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a new key, seal all secrets with it, and remove the keys that no secret needs any more.
    ///
    /// If the keys come from the setting push.keys, the first of them is used, and the command says which ones can be removed. A
    /// command that was interrupted can be repeated.
    Rotate(StoreOptions),
}

#[derive(Debug, Args)]
pub struct CheckAgent {
    /// A preset, a command line, or the name of the agent in the configuration file.
    pub agent: String,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: WorkspaceFlag,
}

#[derive(Debug, Args)]
pub struct DataDirOptions {
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: DataDirFlags,
}

#[derive(Debug, Args)]
pub struct Backup {
    /// The directory for the copy. It must not exist yet.
    pub target: PathBuf,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: StoreFlags,
}

#[derive(Debug, Args)]
pub struct StoreOptions {
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: StoreFlags,
}

#[derive(Debug, Args)]
pub struct DemoModel {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 4999)]
    pub port: u16,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell that reads them.
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Man {
    /// Write a page for each command to this directory, such as ~/.local/share/man/man1.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The configuration file [default: ~/.config/longshore/longshore.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// A flag for every setting that has one.
#[derive(Debug, Default)]
pub struct SettingFlags(pub Flags);

/// A flag for each setting that selects the data directory.
#[derive(Debug, Default)]
pub struct DataDirFlags(pub Flags);

/// The flag of the workspace.
#[derive(Debug, Default)]
pub struct WorkspaceFlag(pub Flags);

/// A flag for each setting that selects the store.
#[derive(Debug, Default)]
pub struct StoreFlags(pub Flags);

const STORE: &[&Setting] =
    &[&table::DATA_DIR, &table::WORKSPACE, &table::DEMO, &table::AGENTS, &table::DATABASE];

const WORKSPACE: &[&Setting] = &[&table::WORKSPACE];

macro_rules! flags_from_table {
    ($name:ident, $settings:expr) => {
        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                augment(command, $settings)
            }

            fn augment_args_for_update(command: Command) -> Command {
                augment(command, $settings)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(collect(matches, $settings)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.0 = collect(matches, $settings);
                Ok(())
            }
        }
    };
}

flags_from_table!(SettingFlags, table::ALL);
flags_from_table!(DataDirFlags, table::DATA_DIR_SETTINGS);
flags_from_table!(StoreFlags, STORE);
flags_from_table!(WorkspaceFlag, WORKSPACE);

fn augment(command: Command, settings: &[&Setting]) -> Command {
    settings.iter().filter_map(|setting| argument(setting)).fold(command, Command::arg)
}

/// Builds the flag of a setting. The flag's value stays text, because the configuration checks the values of all sources with the
/// same error messages.
fn argument(setting: &Setting) -> Option<Arg> {
    let flag = setting.flag?;
    let argument = Arg::new(setting.key)
        .long(flag)
        .help(setting.help)
        .long_help(long_help(setting))
        .help_heading(setting.group().heading())
        .value_name(setting.kind.placeholder())
        .value_hint(match setting.kind {
            Kind::Path | Kind::Paths | Kind::Database => ValueHint::AnyPath,
            _ => ValueHint::Unknown,
        });
    Some(match setting.kind {
        Kind::Switch => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true),
        Kind::Text => argument.allow_hyphen_values(true),
        _ => argument.allow_negative_numbers(true),
    })
}

/// The help text of a setting, with a line that lists its allowed values, its default and its other names.
fn long_help(setting: &Setting) -> String {
    let mut facts = Vec::new();
    if let Kind::Choice(choices) = setting.kind {
        facts.push(format!("[one of: {}]", choices.join(", ")));
    }
    match setting.fallback {
        Fallback::Value(value) => facts.push(format!("[default: {value}]")),
        Fallback::Computed(words) => facts.push(format!("[default: {words}]")),
        Fallback::Nothing => {}
    }
    if matches!(setting.kind, Kind::Bytes | Kind::Count | Kind::SecondsOrOff) {
        facts.push("[0: no limit]".to_owned());
    }
    facts.extend(table::variables(setting).map(|name| format!("[env: {name}]")));
    facts.push(format!("[file: {}]", setting.key));
    format!("{}\n{}", setting.help, facts.join(" "))
}

fn collect(matches: &ArgMatches, settings: &[&'static Setting]) -> Flags {
    settings
        .iter()
        .filter(|setting| setting.flag.is_some())
        .filter_map(|setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_names_every_setting() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
        for setting in table::ALL {
            for name in setting.env.iter().chain([&setting.key]) {
                assert!(help.contains(name), "the help does not name {name}");
            }
        }
    }

    #[test]
    fn flags_become_text_under_the_keys_of_their_settings() {
        let cli =
            Cli::try_parse_from(["longshore", "serve", "--port", "9", "--demo", "--store=memory"]).unwrap();
        let Subcommands::Serve(serve) = cli.command else { panic!("not serve") };
        let expected = [("data.store", "memory"), ("opencode.demo", "true"), ("serve.port", "9")];
        assert_eq!(serve.settings.0, expected.map(|(key, text)| (key, text.to_owned())).into());
    }
}
