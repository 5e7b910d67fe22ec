//! Builds the plan: the checked configuration from which the gateway is built.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_agent_opencode::Pin;
use longshore_edge::contract::{Environment, MissingVersion};
use longshore_edge::{Exposure, Extension};
use longshore_engine::{AlwaysScope, ProtectedPaths, SessionGuard, leads_into};
use longshore_peers::PeersConfig;
use url::Url;

pub use super::agent_plan::AgentPlan;
use super::credentials::{self, Credential, Listed, LocalUser};
use super::limits::{self, Limits};
pub use super::listen::Listen;
use super::listen::{self, names};
use super::placement::Reach;
use super::problem::{self, Problem, Source};
use super::push::{self, PushPlan};
use super::read::{Reader, Written};
use super::setting::Setting;
use super::traces::{self, Traces};
use super::{ProcessContext, agent_plan, agents, client, declared, paths, peers, placement, table};

/// The checked configuration.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Plan {
    /// The configuration file that was read, if any.
    pub config_file: Option<PathBuf>,
    pub listen: Listen,
    /// The configured credentials. `None`: the gateway generates a token, keeps it in the data directory, and prints it.
    pub credentials: Option<Vec<Credential>>,
    /// The users of this machine who need no other credential on the unix socket.
    pub local_users: Vec<LocalUser>,
    /// The sources of the credentials, for messages.
    pub credential_sources: Vec<String>,
    /// The workspace. Its path is absolute, has no symbolic links, and can be handled by OpenCode.
    pub workspace: PathBuf,
    /// Further directories in which callers may work. The paths are absolute and have no symbolic links.
    pub allowed_roots: Vec<PathBuf>,
    pub agent: AgentPlan,
    /// The longest silence of OpenCode's event stream. After it Longshore reconnects.
    pub stream_silence: Duration,
    pub prompt: PromptPlan,
    pub allow_directory_override: bool,
    pub turns: Turns,
    pub control: ControlPlan,
    pub limits: Limits,
    pub push: PushPlan,
    pub input: Input,
    pub output: Output,
    pub required_extensions: Vec<Extension>,
    pub missing_version: MissingVersion,
    pub data_dir: PathBuf,
    /// Whether the data directory is in the workspace or in an allowed root, so that the agent can reach it.
    pub agent_reaches_data_dir: bool,
    /// Why `serve` must not use the configured location of its data. `None`: it may.
    pub misplaced: Option<Problem>,
    /// The credentials and conversations of the user's own OpenCode and of the served agent.
    pub agent_secrets: Vec<PathBuf>,
    /// How long to wait for a data directory that another gateway holds locked.
    pub lock_wait: Duration,
    /// Whether to send the waiting messages of a restored backup. Only the command line sets it, because it is a decision about one
    /// start.
    pub resume_restored: bool,
    pub store: StorePlan,
    /// The least free disk space for new tasks, in bytes. 0: no limit.
    pub min_free_disk: usize,
    pub retention: Retention,
    pub card: CardTexts,
    /// The declarations to callers about the place where the agent works.
    pub environment: Environment,
    pub log: Log,
    /// Whether `/metrics` is served.
    pub metrics: bool,
    /// The export of traces. `None`: no traces are sent.
    pub traces: Option<Traces>,
    /// The agents that the gateway's agent may call. `None`: it may call none.
    pub peers: Option<PeersConfig>,
    /// The settings of the commands that call an agent.
    pub client: longshore_client::Settings,
}

/// The settings for prompt options: the default of each option, for prompts that do not set it, and the values that callers may
/// choose.
#[derive(Clone, Debug, Default)]
pub struct PromptPlan {
    pub model: Option<String>,
    pub agent: Option<String>,
    pub system: Option<String>,
    pub variant: Option<String>,
    /// Options that callers may not choose.
    pub pinned: Vec<Pin>,
    /// The models that callers may choose. `None`: any.
    pub allowed_models: Option<Vec<String>>,
    /// The OpenCode agents that callers may choose. `None`: any.
    pub allowed_agents: Option<Vec<String>>,
}

/// Limits for the content of messages.
#[derive(Clone, Debug)]
pub struct Input {
    pub data_parts: bool,
    pub text_types: Vec<String>,
    pub media_types: Vec<String>,
    pub max_text_bytes: u64,
    pub max_inline_bytes: u64,
    pub max_file_bytes: u64,
    pub max_metadata_bytes: u64,
    /// The most extensions that a message may name. `None`: no limit.
    pub max_extensions: Option<usize>,
    /// The most tasks that a message may refer to. `None`: no limit.
    pub max_references: Option<usize>,
    pub remote_hosts: Vec<String>,
}

/// The output that callers see.
#[derive(Clone, Debug)]
pub struct Output {
    pub exposure: Exposure,
    pub written_files: bool,
    pub max_file_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Turns {
    pub control_timeout: Duration,
    /// The longest turn. `None`: no limit.
    pub timeout: Option<Duration>,
    /// The longest silence of the agent in a turn. `None`: no limit.
    pub silence: Option<Duration>,
    /// The most steps of a turn. `None`: no limit.
    pub max_steps: Option<usize>,
    /// How long a turn waits for turns of other clients in its session. `None`: no limit.
    pub wait_for_others: Option<Duration>,
    pub cancel_abort_timeout: Duration,
    pub idempotency_window: Duration,
    pub asks: Asks,
}

/// The handling of an ask that nobody answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asks {
    /// How long an ask may be open. `None`: as long as its turn runs.
    pub time_to_live: Option<Duration>,
    pub tombstone: Duration,
    /// Whether the deadline of a permission request grants it once. Otherwise it is rejected.
    pub grants_at_deadline: bool,
}

/// The access of callers to OpenCode besides turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the configuration")]
pub struct ControlPlan {
    pub session_shell: bool,
    pub workspace_mutations: bool,
    pub session_share: bool,
    pub session_delete: bool,
    pub session_guard: SessionGuard,
    pub always_scope: AlwaysScope,
    pub claim_ttl: Duration,
    /// The most directories that are watched for external turns. 0: external turns never become tasks.
    pub watch_directories: usize,
}

/// The retention of finished tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// How long the events of a task are kept. `None`: forever.
    pub fold_after: Option<Duration>,
    /// How long the task itself is kept. `None`: forever.
    pub keep_tasks: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StorePlan {
    Memory,
    Sqlite { path: PathBuf, survives_power_loss: bool },
}

#[derive(Clone, Debug)]
pub struct CardTexts {
    pub title: String,
    pub description: String,
    pub version: String,
    pub project: Option<String>,
    pub documentation_url: Option<Url>,
    pub expose_workspace_root: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    pub level: LogLevel,
    pub json: bool,
    /// Whether the JSON of requests and responses is logged too.
    pub payloads: bool,
    /// The longest body that is logged, in bytes. Longer ones are left out. 0: no limit.
    pub body_limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
    Trace,
}

impl Plan {
    /// The gateway's own files, which callers must not reach.
    pub fn protected_paths(&self) -> ProtectedPaths {
        let mut paths = self.agent_secrets.clone();
        paths.push(self.data_dir.clone());
        paths.extend(self.config_file.clone());
        paths.extend(self.listen.tls.as_ref().map(|tls| tls.key.clone()));
        if let StorePlan::Sqlite { path, .. } = &self.store {
            // SQLite keeps recent writes in files next to the database. The gateway keeps its disk reserve there too.
            paths.extend(["", "-wal", "-shm", "-journal", "-reserve", "-reserve-new"].map(|end| {
                let mut path = path.clone().into_os_string();
                path.push(end);
                path.into()
            }));
        }
        // Two places are not protected, because callers may work there: the worktrees that the demo's OpenCode makes, and a
        // workspace below the data directory or below a home of the agent.
        let is_below_a_home =
            |home: &PathBuf| leads_into(&self.workspace, home) && !leads_into(home, &self.workspace);
        let mut homes = self.agent_secrets.iter().chain([&self.data_dir]);
        let workspace = homes.any(is_below_a_home).then(|| self.workspace.clone());
        let open = [self.demo_home().join("data/opencode/worktree")].into_iter().chain(workspace);
        ProtectedPaths::new(paths).except(open)
    }

    /// The home of the demo's OpenCode.
    pub fn demo_home(&self) -> PathBuf {
        self.data_dir.join("opencode-home")
    }
}

/// Builds the plan. `None`: a problem was added to the reader.
pub(super) fn build(reader: &mut Reader<'_>, context: &ProcessContext) -> Option<Plan> {
    let listen = listen::read(reader, &context.directory);
    let (credentials, local_users) = credentials(reader, listen.as_ref());
    let credential_sources = credential_sources(reader);
    let configured = agents::read(reader, context);
    let workspace = workspace(reader, &context.directory, configured.as_ref());
    let allowed_roots = allowed_roots(reader, &context.directory);
    let agent = agent_plan::read(reader, &context.directory, configured);
    let stream_silence = reader.seconds(&table::STREAM_SILENCE);
    let prompt = prompt(reader);
    let allow_directory_override = reader.switch(&table::DIRECTORY_OVERRIDE);
    let turns = turns(reader);
    let control = control(reader);
    let limits = limits::read(reader);
    let push = push::read(reader);
    let input = input(reader);
    let output = output(reader);
    let required_extensions = required_extensions(reader);
    let missing_version = missing_version(reader);
    let data_dir = data_dir(reader, context, workspace.as_deref(), agent.as_ref());
    let lock_wait = reader.seconds(&table::LOCK_WAIT);
    let store = store(reader, &context.directory, data_dir.as_deref());
    let min_free_disk = reader.bytes(&table::MIN_FREE_DISK);
    let reach = workspace.as_deref().map(|workspace| Reach { workspace, allowed_roots: &allowed_roots });
    let misplaced = placement::check(reader, reach, data_dir.as_deref(), store.as_ref());
    let retention = Retention {
        fold_after: reader.seconds_or_off(&table::FOLD_AFTER),
        keep_tasks: reader.seconds_or_off(&table::KEEP_TASKS),
    };
    let card = card(reader, agent.as_ref());
    let environment = declared::read(reader, &context.directory, workspace.as_deref());
    let log = log(reader);
    let metrics = reader.switch(&table::METRICS);
    let traces = traces::read(reader);
    let client = client::read(reader);
    let peers = peers::read(reader, context, &client);
    Some(Plan {
        config_file: None,
        listen: listen?,
        credentials,
        local_users,
        credential_sources,
        agent_reaches_data_dir: reach?.contains(data_dir.as_deref()?).is_some(),
        misplaced,
        agent_secrets: agent_plan::secrets(agent.as_ref(), &context.environment, workspace.as_deref()),
        workspace: workspace?,
        allowed_roots,
        agent: agent?,
        stream_silence: stream_silence?,
        prompt,
        allow_directory_override,
        turns: turns?,
        control: control?,
        limits: limits?,
        push: push?,
        input: input?,
        output: output?,
        required_extensions,
        missing_version: missing_version?,
        data_dir: data_dir?,
        lock_wait: lock_wait?,
        resume_restored: false,
        store: store?,
        min_free_disk: min_free_disk?,
        retention,
        card: card?,
        environment: environment?,
        log: log?,
        metrics,
        traces,
        peers: peers.ok()?,
        client,
    })
}

fn credentials(
    reader: &mut Reader<'_>,
    listen: Option<&Listen>,
) -> (Option<Vec<Credential>>, Vec<LocalUser>) {
    let Listed { credentials: entries, users } = credentials::read(reader);
    let token = reader.secret(&table::BEARER_TOKEN);
    let key = reader.secret(&table::API_KEY);
    let mut all: Vec<Credential> = token.map(Credential::of_owner).into_iter().collect();
    all.extend(key.map(Credential::of_owner_with_key));
    all.extend(entries);
    let lacks_authority = listen.is_some_and(|listen| !listen.asks_for_certificates());
    let unusable = || credentials::unusable_certificate(&all).filter(|_| lacks_authority);
    let has_socket = listen.is_none_or(|listen| listen.unix.is_some());
    let unusable_users = || credentials::unusable_users(&users, has_socket);
    if let Some(reason) = credentials::ambiguous(&all).or_else(unusable).or_else(unusable_users)
        && let Some(written) = reader.written(&table::CREDENTIALS)
    {
        reader.problem(Problem::rule(&written.source, &table::CREDENTIALS, reason));
    }
    ((!all.is_empty()).then_some(all), users)
}

fn credential_sources(reader: &mut Reader<'_>) -> Vec<String> {
    let settings = [&table::BEARER_TOKEN, &table::API_KEY, &table::CREDENTIALS];
    let source = |setting| Some(problem::location(&reader.written(setting)?.source, setting));
    settings.into_iter().filter_map(source).collect()
}

fn workspace(
    reader: &mut Reader<'_>,
    here: &Path,
    configured: Option<&agents::Configured>,
) -> Option<PathBuf> {
    let written = reader.written(&table::WORKSPACE);
    let of_agent = configured.and_then(|configured| configured.workspace.clone());
    if let (Some(Written { source: source @ Source::File { .. }, .. }), Some(_)) = (&written, &of_agent) {
        let reason = "the entry in agents has a workspace too; leave one of the two out";
        reader.problem(Problem::rule(source, &table::WORKSPACE, reason));
    }
    let directory = reader.path(&table::WORKSPACE).or(of_agent);
    let directory = directory.map_or_else(|| here.to_owned(), |path| here.join(path));
    let reason = match directory.canonicalize() {
        Ok(directory) if directory.is_dir() => match paths::unusable(&directory) {
            None => return Some(directory),
            Some(reason) => format!("{} {reason}", directory.display()),
        },
        found => paths::no_directory(&directory, found),
    };
    let source = written.map_or(Source::Default, |written| written.source);
    reader.problem(Problem::rule(&source, &table::WORKSPACE, reason));
    None
}

/// Reads the allowed roots. A root that is no directory is a problem, because callers could never use it.
fn allowed_roots(reader: &mut Reader<'_>, here: &Path) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for path in reader.paths(&table::ALLOWED_ROOTS) {
        let reason = match here.join(&path).canonicalize() {
            Ok(found) if found.is_dir() => match paths::unusable(&found) {
                None => {
                    roots.push(found);
                    continue;
                }
                Some(reason) => format!("{} {reason}", path.display()),
            },
            found => paths::no_directory(&path, found),
        };
        if let Some(written) = reader.written(&table::ALLOWED_ROOTS) {
            reader.problem(Problem::rule(&written.source, &table::ALLOWED_ROOTS, reason));
        }
    }
    roots
}

fn prompt(reader: &mut Reader<'_>) -> PromptPlan {
    let allowed = |reader: &mut Reader<'_>, setting: &Setting| {
        reader.written(setting).is_some().then(|| reader.list(setting))
    };
    let is_pin = |word: &str| Pin::parse(word).map(|pin| pin.as_str().to_owned());
    let pinned = names(reader, &table::PIN, is_pin, "must be model, agent, variant or system");
    PromptPlan {
        model: reader.model(&table::MODEL),
        agent: reader.text(&table::AGENT),
        system: reader.text(&table::SYSTEM),
        variant: reader.text(&table::VARIANT),
        pinned: pinned.iter().filter_map(|word| Pin::parse(word)).collect(),
        allowed_models: allowed(reader, &table::ALLOWED_MODELS),
        allowed_agents: allowed(reader, &table::ALLOWED_AGENTS),
    }
}

fn turns(reader: &mut Reader<'_>) -> Option<Turns> {
    let control_timeout = reader.seconds(&table::TIMEOUT);
    let timeout = reader.seconds_or_off(&table::TURN_TIMEOUT);
    let silence = reader.seconds_or_off(&table::SILENCE);
    let max_steps = reader.count(&table::MAX_STEPS);
    let wait_for_others = reader.seconds_or_off(&table::WAIT_FOR_OTHERS);
    let cancel_abort_timeout = reader.seconds(&table::CANCEL_TIMEOUT);
    let idempotency_window = reader.seconds(&table::IDEMPOTENCY);
    let asks = asks(reader);
    Some(Turns {
        control_timeout: control_timeout?,
        timeout,
        silence,
        max_steps,
        wait_for_others,
        cancel_abort_timeout: cancel_abort_timeout?,
        idempotency_window: idempotency_window?,
        asks: asks?,
    })
}

fn control(reader: &mut Reader<'_>) -> Option<ControlPlan> {
    let session_shell = reader.switch(&table::SESSION_SHELL);
    let workspace_mutations = reader.switch(&table::WORKSPACE_MUTATIONS);
    let session_share = reader.switch(&table::SESSION_SHARE);
    let session_delete = reader.switch(&table::SESSION_DELETE);
    let session_guard = reader.choice(&table::SESSION_GUARD);
    let always_scope = reader.choice(&table::ALWAYS_SCOPE);
    let claim_ttl = reader.seconds(&table::CLAIM_TTL);
    let watch_directories = reader.count_or_none(&table::WATCH_DIRECTORIES);
    Some(ControlPlan {
        session_shell,
        workspace_mutations,
        session_share,
        session_delete,
        session_guard: SessionGuard::parse(session_guard?)?,
        always_scope: match always_scope? {
            "session" => AlwaysScope::Session,
            // The word is `agent`, or `opencode`, which is the name from before other agents were supported.
            _ => AlwaysScope::Agent,
        },
        claim_ttl: claim_ttl?,
        watch_directories: watch_directories?,
    })
}

fn input(reader: &mut Reader<'_>) -> Option<Input> {
    let data_parts = reader.choice(&table::DATA_PARTS);
    let text_types = media_types(reader, &table::TEXT_TYPES);
    let media_types = media_types(reader, &table::MEDIA_TYPES);
    let max_text_bytes = reader.size(&table::MAX_TEXT);
    let max_inline_bytes = reader.size(&table::MAX_INLINE);
    let max_file_bytes = reader.size(&table::MAX_FILE);
    let max_metadata_bytes = reader.size(&table::MAX_METADATA);
    let max_extensions = reader.count(&table::MAX_EXTENSIONS);
    let max_references = reader.count(&table::MAX_REFERENCES);
    let remote_hosts = reader.list(&table::REMOTE_HOSTS);
    Some(Input {
        data_parts: data_parts? == "accept",
        text_types,
        media_types,
        max_text_bytes: max_text_bytes?,
        max_inline_bytes: max_inline_bytes?,
        max_file_bytes: max_file_bytes?,
        max_metadata_bytes: max_metadata_bytes?,
        max_extensions,
        max_references,
        remote_hosts: remote_hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect(),
    })
}

fn media_types(reader: &mut Reader<'_>, setting: &Setting) -> Vec<String> {
    let parse = |media_type: &str| {
        let (kind, subtype) = media_type.split_once('/')?;
        (!kind.is_empty() && !subtype.is_empty()).then(|| media_type.to_ascii_lowercase())
    };
    names(reader, setting, parse, "is not a media type such as text/x-log or video/*")
}

fn output(reader: &mut Reader<'_>) -> Option<Output> {
    let words = reader.list(&table::THINKING);
    let exposure = credentials::exposure(words.iter().map(String::as_str));
    if exposure.is_none()
        && let Some(written) = reader.written(&table::THINKING)
    {
        reader.problem(Problem::rule(&written.source, &table::THINKING, credentials::EXPOSURES));
    }
    let written_files = reader.switch(&table::WRITTEN_FILES);
    let max_file_bytes = reader.size(&table::MAX_KEPT);
    Some(Output { exposure: exposure?, written_files, max_file_bytes: max_file_bytes? })
}

fn required_extensions(reader: &mut Reader<'_>) -> Vec<Extension> {
    let uris = reader.list(&table::REQUIRED_EXTENSIONS);
    let offered = |uri: &String| Extension::parse(uri).filter(|named| Extension::PUBLIC.contains(named));
    if let Some(unknown) = uris.iter().find(|uri| offered(uri).is_none())
        && let Some(written) = reader.written(&table::REQUIRED_EXTENSIONS)
    {
        let known: Vec<&str> = Extension::PUBLIC.iter().map(|extension| extension.uri()).collect();
        let reason = format!(
            "{unknown:?} cannot be required of every caller; the extensions that can be required are {}",
            known.join(", ")
        );
        reader.problem(Problem::rule(&written.source, &table::REQUIRED_EXTENSIONS, reason));
    }
    uris.iter().filter_map(offered).collect()
}

fn missing_version(reader: &mut Reader<'_>) -> Option<MissingVersion> {
    Some(match reader.choice(&table::MISSING_VERSION)? {
        "0.3" => MissingVersion::V03,
        _ => MissingVersion::ByRequest,
    })
}

fn asks(reader: &mut Reader<'_>) -> Option<Asks> {
    let time_to_live = reader.seconds_or_off(&table::ASK_TTL);
    let tombstone = reader.seconds(&table::ASK_TOMBSTONE);
    let at_deadline = reader.choice(&table::ASK_DEADLINE)?;
    Some(Asks {
        time_to_live: time_to_live.filter(|_| at_deadline != "keep"),
        tombstone: tombstone?,
        grants_at_deadline: at_deadline == "once",
    })
}

fn data_dir(
    reader: &mut Reader<'_>,
    context: &ProcessContext,
    workspace: Option<&Path>,
    agent: Option<&AgentPlan>,
) -> Option<PathBuf> {
    if let Some(path) = reader.path(&table::DATA_DIR) {
        return Some(context.directory.join(path));
    }
    let found = paths::default_data_dir(&context.environment, workspace?, &agent?.data_dir_suffix());
    if found.is_none() {
        let reason = "must be set: neither XDG_DATA_HOME nor HOME names a directory for it";
        reader.problem(Problem::rule(&Source::Default, &table::DATA_DIR, reason));
    }
    found
}

fn store(reader: &mut Reader<'_>, here: &Path, data_dir: Option<&Path>) -> Option<StorePlan> {
    let backend = reader.choice(&table::STORE);
    let database = reader.database(&table::DATABASE);
    let durability = reader.choice(&table::DURABILITY);
    if backend? == "memory" {
        for setting in [&table::DATABASE, &table::DURABILITY] {
            if let Some(written) = reader.written(setting) {
                reader.warn(format!(
                    "{} ({}) has no effect: tasks are kept in memory",
                    written.source, setting.key
                ));
            }
        }
        return Some(StorePlan::Memory);
    }
    let path = match database {
        Some(path) => here.join(path),
        None => data_dir?.join("longshore.db"),
    };
    Some(StorePlan::Sqlite { path, survives_power_loss: durability? == "power" })
}

fn card(reader: &mut Reader<'_>, agent: Option<&AgentPlan>) -> Option<CardTexts> {
    let (mut title, mut description) = (reader.text(&table::TITLE), reader.text(&table::DESCRIPTION));
    // Replace the defaults of the table, which are for OpenCode.
    if let Some(AgentPlan::Acp(agent)) = agent {
        if reader.written(&table::TITLE).is_none() {
            title = Some(agent.title().to_owned());
        }
        if reader.written(&table::DESCRIPTION).is_none() {
            description = Some(format!("A coding agent ({}) that works in one directory.", agent.title()));
        }
    }
    let version = reader.text(&table::CARD_VERSION);
    let project = reader.text(&table::PROJECT);
    let documentation_url = reader.url(&table::DOCUMENTATION);
    let expose_workspace_root = reader.switch(&table::EXPOSE_ROOT);
    Some(CardTexts {
        title: title?,
        description: description?,
        version: version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
        project,
        documentation_url,
        expose_workspace_root,
    })
}

fn log(reader: &mut Reader<'_>) -> Option<Log> {
    let level = reader.choice(&table::LOG_LEVEL);
    let format = reader.choice(&table::LOG_FORMAT);
    let payloads = reader.switch(&table::LOG_PAYLOADS);
    let body_limit = reader.bytes(&table::LOG_BODY_LIMIT);
    let level = match level? {
        "critical" | "error" => LogLevel::Error,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        "trace" => LogLevel::Trace,
        _ => LogLevel::Warning,
    };
    Some(Log { level, json: format? == "json", payloads, body_limit: body_limit? })
}
