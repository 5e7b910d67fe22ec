//! Checks the gateway of the directory: whether it runs, accepts its own credential, and can be reached at its public URL.

use std::io;
use std::time::{Duration, SystemTime};

use longshore_client::{
    Binding, Client, Discovered, Discovery, ErrorKind, Interface, Listing, ProtocolVersion, Settings,
};
use longshore_engine::port::{Clock as _, SystemClock};
use tokio::net::{TcpSocket, ToSocketAddrs};
use url::Url;

use super::Finding;
use crate::client::target::{self, Local};
use crate::config::Plan;
use crate::config::table;

/// The largest difference between two clocks that is no warning. A larger one confuses people, and breaks tokens that expire.
const MAX_SKEW: Duration = Duration::from_mins(1);

/// The earliest plausible time: 1 January 2026, in milliseconds since 1970. A clock before that was never set.
const NOT_BEFORE: i64 = 1_767_225_600_000;

pub(super) async fn check(plan: &Plan) -> Vec<Finding> {
    let mut findings = vec![own_clock()];
    let running = running(plan).await;
    let is_running = matches!(&running, State::Running(_));
    match running {
        State::Running(url) => findings.push(Finding::fine("gateway", format!("runs at {url}"))),
        State::Wrong(finding) => findings.push(finding),
        State::NotRunning => {
            findings.push(Finding::fine("gateway", "does not run now; `longshore serve` starts it"));
            findings.extend(port(plan).await);
        }
    }
    if let Some(url) = &plan.listen.public_url {
        findings.extend(public_url(url, is_running, &plan.client).await);
    }
    findings
}

enum State {
    Running(Url),
    NotRunning,
    Wrong(Finding),
}

async fn running(plan: &Plan) -> State {
    let Local { url, settings } = match target::local(plan) {
        Ok(Some(local)) => local,
        Ok(None) => return State::NotRunning,
        Err(failure) => {
            let advice = "So this check could not ask the gateway whether it works.";
            return State::Wrong(Finding::warning("gateway", failure.to_string(), advice));
        }
    };
    let has_credential = settings.credential.is_some();
    match ask(url.clone(), settings).await {
        Ok(()) => State::Running(url),
        Err(error) if error.kind() == ErrorKind::Unauthenticated && has_credential => {
            State::Wrong(Finding::problem(
                "gateway",
                format!("the gateway at {url} refuses the configured credential"),
                "It was started with another configuration. Restart it, or run this command with its environment and flags.",
            ))
        }
        Err(error) => State::Wrong(Finding::problem(
            "gateway",
            format!("the gateway at {url} does not work: {}", error.message()),
            "Look at its log, and restart it.",
        )),
    }
}

async fn ask(url: Url, settings: Settings) -> longshore_client::Result<()> {
    let interface =
        Interface { url, binding: Binding::JsonRpc, version: ProtocolVersion::V1, tenant: String::new() };
    let client = Client::at(interface, settings)?;
    client.list(&Listing { page_size: Some(1), ..Listing::default() }).await.map(drop)
}

/// Checks that the port is free. Called only while no gateway of this directory runs. `None`: it is free, or the gateway uses no
/// port.
async fn port(plan: &Plan) -> Option<Finding> {
    let (host, port) = (plan.listen.host.as_str(), plan.listen.port?);
    match reserve((host, port)).await {
        Ok(_) => None,
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "another program uses this port".to_owned(),
                _ => error.to_string(),
            };
            Some(Finding::problem(
                "port",
                format!("cannot listen on {host} port {port}: {why}"),
                "End the other program, or choose another port with --port or another address with --host.",
            ))
        }
    }
}

/// Binds the first free address but does not listen on it, so that a gateway that starts meanwhile can still listen there.
async fn reserve(place: impl ToSocketAddrs) -> io::Result<TcpSocket> {
    let mut refused = io::ErrorKind::AddrNotAvailable.into();
    for address in tokio::net::lookup_host(place).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        match socket.bind(address) {
            Ok(()) => return Ok(socket),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

async fn public_url(url: &Url, is_running: bool, settings: &Settings) -> Vec<Finding> {
    let what = "public URL";
    if !is_running {
        return vec![Finding::fine(what, format!("{url} can be checked only while the gateway runs"))];
    }
    let settings = Settings { credential: None, ..settings.clone() };
    let found = match Discovery::new().find(url.as_str(), &settings).await {
        Ok(found) => found,
        Err(error) => {
            return vec![Finding::problem(
                what,
                format!("the card cannot be read at {url}: {}", error.message()),
                format!(
                    "Let the proxy pass this URL on to the gateway, or correct {} (--public-url).",
                    table::PUBLIC_URL.key
                ),
            )];
        }
    };
    let Discovered { card, date, .. } = found;
    let is_ours = card.interfaces.iter().any(|interface| {
        interface.url.as_str().trim_end_matches('/').starts_with(url.as_str().trim_end_matches('/'))
    });
    let mut findings = vec![if is_ours {
        Finding::fine(what, format!("the card can be read at {url}"))
    } else {
        Finding::problem(
            what,
            format!("the card at {url} is that of another agent, {}", card.name),
            "Let the proxy pass this URL on to this gateway, or correct serve.public_url (--public-url).",
        )
    }];
    findings.extend(date.and_then(|date| skew(&date)));
    findings
}

fn own_clock() -> Finding {
    if SystemClock.now().0 < NOT_BEFORE {
        return Finding::problem(
            "clock",
            "the clock of this machine was never set",
            "Set it, and keep it right with NTP: tasks are sorted and deleted by time.",
        );
    }
    Finding::fine("clock", "is set")
}

/// Compares the clock of this machine with that of the server in front of the gateway. `date`: the server's `Date` header.
fn skew(date: &str) -> Option<Finding> {
    let theirs = httpdate::parse_http_date(date).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let ours = Duration::from_millis(u64::try_from(SystemClock.now().0).ok()?);
    let skew = ours.abs_diff(theirs);
    (skew > MAX_SKEW).then(|| {
        Finding::warning(
            "clock",
            format!("this machine and the server at the public URL differ by {} s", skew.as_secs()),
            "Keep both right with NTP.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gateway_can_start_while_the_doctor_looks_at_its_port() {
        let looking = reserve("127.0.0.1:0").await.unwrap();
        let address = looking.local_addr().unwrap();
        let gateway = tokio::net::TcpListener::bind(address).await.unwrap();
        let taken = reserve(address).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(gateway);
    }
}
