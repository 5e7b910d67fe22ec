//! The measured servers, and the stand-in behind them, as child processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::time::{Instant, sleep, timeout};

use crate::drive::{Connection, ProtocolVersion, Target, call, totals};
use crate::process::{self, Owned};
use crate::{clock, number};

/// The principals of a server: the measured one, and one that floods.
pub const PRINCIPALS: [(&str, &str); 2] =
    [("bench", "a-token-for-the-bench-0123456789"), ("flood", "another-token-for-the-bench-012345")];

/// How long a server may take to start.
const START: Duration = Duration::from_mins(1);
/// The pause between two attempts to read its card.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Switches off everything that would refuse or end measured work. These names are the same for both servers.
const UNLIMITED: &[(&str, &str)] = &[
    ("A2A_RATE_LIMIT_ENABLED", "false"),
    ("A2A_STREAM_MAX_BYTES", "0"),
    ("A2A_STREAM_MAX_DURATION_SECONDS", "0"),
    ("A2A_STREAM_IDLE_TIMEOUT_SECONDS", "0"),
    ("OPENCODE_MAX_CONCURRENT_REQUESTS", "0"),
    ("OPENCODE_MAX_CONCURRENT_STREAMS", "0"),
];

const PEER_ONLY: &[(&str, &str)] = &[
    ("A2A_MAX_REQUEST_BODY_BYTES", "0"),
    ("OPENCODE_TIMEOUT", "3600"),
    ("OPENCODE_TIMEOUT_STREAM", "3600"),
    ("A2A_LOG_LEVEL", "ERROR"),
];

/// Limits that only Longshore has. 0: no limit.
const OURS_ONLY: &[(&str, &str)] = &[
    ("LONGSHORE_MAX_STREAMS", "0"),
    ("LONGSHORE_MAX_STREAMS_PER_PRINCIPAL", "0"),
    ("LONGSHORE_MAX_TURNS_PER_PRINCIPAL", "0"),
    ("LONGSHORE_MAX_UNFINISHED", "0"),
    ("LONGSHORE_MAX_UNFINISHED_PER_PRINCIPAL", "0"),
    ("LONGSHORE_MAX_UNFINISHED_PER_CONTEXT", "0"),
];

/// A realistic rate limit for a server with several busy callers: 150 requests a second each, with bursts. (Without this setting
/// there is no rate limit on a loopback address.)
const RATED: &[(&str, &str)] = &[
    ("A2A_RATE_LIMIT_ENABLED", "true"),
    ("A2A_RATE_LIMIT_MAX_REQUESTS", "1500"),
    ("A2A_RATE_LIMIT_WINDOW_SECONDS", "10"),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Longshore,
    Peer,
}

/// What Longshore speaks with its agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentProtocol {
    /// OpenCode's own HTTP API.
    OpenCode,
    Acp,
}

/// The agent behind a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Agent {
    /// A stand-in for OpenCode, which runs at this address.
    OpenCode(SocketAddr),
    /// An ACP stand-in. Longshore starts it: it is this program, the bench.
    Acp(PathBuf),
}

/// The limits of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limits {
    /// None: only the work is measured.
    Off,
    /// The defaults on a loopback address: all limits except the rate limit.
    Default,
    /// The defaults with a rate limit.
    Rated,
}

/// A stand-in for OpenCode, as a process of its own.
#[derive(Debug)]
pub struct StandIn {
    process: Owned,
    pub address: SocketAddr,
}

impl StandIn {
    pub fn start() -> Result<Self> {
        let me = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = Command::new(me);
        command.arg("stand-in").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Owned::start(&mut command)?;
        let address = process.first(|line| line.strip_prefix("listening on ")?.parse().ok())?;
        Ok(Self { process, address })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    pub longshore: PathBuf,
    /// `opencode-a2a`. `None`: the peer is not measured.
    pub peer: Option<PathBuf>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    process: Owned,
    home: PathBuf,
    pub address: SocketAddr,
    pub kind: Kind,
    /// Where the stand-in behind it answers the bench.
    pub stand_in: SocketAddr,
    /// The process of the stand-in, if the server started it.
    pub own_stand_in: Option<u32>,
    /// From its start to the first answer with its card.
    pub card_ms: f64,
}

impl Server {
    /// Starts a server in an empty directory, and waits until it serves its card.
    pub async fn start(
        kind: Kind,
        programs: &Programs,
        agent: Agent,
        home: PathBuf,
        limits: Limits,
        more: &[(&str, &str)],
    ) -> Result<Self> {
        let workspace = home.join("workspace");
        std::fs::create_dir_all(&workspace).context("cannot create the directory of a server")?;
        let (home, workspace) = (home.canonicalize()?, workspace.canonicalize()?);
        let port = process::free_port()?;
        let stand_in = match &agent {
            Agent::OpenCode(address) => *address,
            Agent::Acp(_) => SocketAddr::from(([127, 0, 0, 1], process::free_port()?)),
        };
        let mut command = match kind {
            Kind::Longshore => longshore(&programs.longshore, &home, &workspace, port),
            Kind::Peer => peer(programs, &home, &workspace, stand_in, port)?,
        };
        match (kind, &agent) {
            (Kind::Peer, _) => {}
            (Kind::Longshore, Agent::OpenCode(address)) => {
                command.arg("--opencode-url").arg(format!("http://{address}"));
            }
            (Kind::Longshore, Agent::Acp(program)) => {
                let program = program.display();
                command.arg("--agent").arg(format!("'{program}' stand-in --acp --listen {stand_in}"));
            }
        }
        let settings: &[&[(&str, &str)]] = match (limits, kind) {
            (Limits::Off, Kind::Longshore) => &[UNLIMITED, OURS_ONLY],
            (Limits::Off, Kind::Peer) => &[UNLIMITED, PEER_ONLY],
            (Limits::Default, _) => &[],
            (Limits::Rated, _) => &[RATED],
        };
        command.envs(settings.iter().copied().flatten().copied());
        let log = std::fs::File::create(home.join("server.log"))?;
        command
            .env("A2A_STATIC_AUTH_CREDENTIALS", credentials())
            .envs(more.iter().copied())
            .stdout(log.try_clone()?)
            .stderr(log);
        let begun = clock::monotonic_ns();
        let mut process = Owned::start(&mut command)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let deadline = Instant::now() + START;
        while !shows_card(address).await {
            if process.ended().is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(home.join("server.log")).unwrap_or_default();
                bail!("{kind:?} did not serve its card; its log: {log}");
            }
            sleep(TRY_AGAIN).await;
        }
        let card_ms = number::float(clock::monotonic_ns() - begun) / 1e6;
        // Longshore starts its agent before it serves.
        let own_stand_in = match agent {
            Agent::OpenCode(_) => None,
            Agent::Acp(_) => Some(totals(stand_in).await?.pid),
        };
        Ok(Self { process, home, address, kind, stand_in, own_stand_in, card_ms })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The target for the clients of the bench.
    pub fn target(&self, version: ProtocolVersion) -> Target {
        Target { address: self.address, token: PRINCIPALS[0].1.to_owned(), version }
    }

    /// The size of its database, including the write-ahead log.
    pub fn database_bytes(&self) -> u64 {
        let mut sum = 0;
        let mut directories = vec![self.home.clone()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.to_string_lossy().contains(".db") {
                    sum += entry.metadata().map_or(0, |facts| facts.len());
                }
            }
        }
        sum
    }

    /// Stops the server and removes its directory.
    pub async fn stop(self) {
        self.process.stop().await;
        // If this fails, the directory stays below `target/`, where it does no harm.
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

fn longshore(program: &Path, home: &Path, workspace: &Path, port: u16) -> Command {
    let mut command = process::clean(program, home);
    command
        .args(["serve", "--store", "sqlite", "--log-level", "warning", "--host", "127.0.0.1", "--port"])
        .arg(port.to_string())
        .arg("--data-dir")
        .arg(home.join("data"))
        .arg("--workspace")
        .arg(workspace);
    command
}

fn peer(
    programs: &Programs,
    home: &Path,
    workspace: &Path,
    stand_in: SocketAddr,
    port: u16,
) -> Result<Command> {
    let program = programs.peer.as_ref().context("the peer is not installed")?;
    let mut command = process::clean(program, home);
    command
        .arg("serve")
        .env("A2A_HOST", "127.0.0.1")
        .env("A2A_PORT", port.to_string())
        .env("A2A_PUBLIC_URL", format!("http://127.0.0.1:{port}"))
        .env("OPENCODE_BASE_URL", format!("http://{stand_in}"))
        .env("OPENCODE_WORKSPACE_ROOT", workspace)
        .env(
            "A2A_TASK_STORE_DATABASE_URL",
            format!("sqlite+aiosqlite:///{}", home.join("peer.db").display()),
        );
    Ok(command)
}

fn credentials() -> String {
    let entry = |(principal, token): &(&str, &str)| serde_json::json!({"scheme": "bearer", "token": token, "principal": principal});
    PRINCIPALS.iter().map(entry).collect::<serde_json::Value>().to_string()
}

async fn shows_card(address: SocketAddr) -> bool {
    let ask = async {
        let mut connection = Connection::open(address).await.ok()?;
        let target = Target { address, token: PRINCIPALS[0].1.to_owned(), version: ProtocolVersion::V1 };
        let reply = call(&mut connection, &target.get("/.well-known/agent-card.json")).await.ok()?;
        (reply.head.status == 200).then_some(())
    };
    timeout(Duration::from_secs(10), ask).await.is_ok_and(|shown| shown.is_some())
}
