//! Reads the agents that the gateway's own agent may call: `[[peers]]` and the section `[calls]`.

use std::sync::Arc;
use std::time::Duration;

use longshore_client::{Binding, Credential, ProtocolVersion, Settings};
use longshore_outbound::{Guard, HostRule, IpNet, Rules, Scheme, SystemResolver};
use longshore_peers::{CLIENT_LIMITS, CallLimits, HopRules, InAll, Peer, PeersConfig, UrlRules};
use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use super::entry::Table;
use super::problem::Problem;
use super::read::{Reader, parse_list, parse_switch};
use super::setting::Setting;
use super::table::{self, PEERS};
use super::{ProcessContext, client};

/// All fields of a `[[peers]]` entry.
const FIELDS: [&str; 17] = [
    "name",
    "url",
    "description",
    "version",
    "bindings",
    "bearer_token",
    "bearer_token_env",
    "basic_auth",
    "basic_auth_env",
    "api_key",
    "api_key_env",
    "timeout",
    "card_timeout",
    "call_timeout",
    "max_result_bytes",
    "max_asks",
    "model_answers",
];

/// The fields whose value is a secret.
const SECRETS: [&str; 3] = ["bearer_token", "basic_auth", "api_key"];

/// The longest name of a peer.
const MAX_NAME: usize = 40;

/// The private and loopback networks.
const PRIVATE: [&str; 6] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "::1/128", "fc00::/7"];

/// Whether a `[[peers]]` table holds a secret.
pub(super) fn holds_secret(text: &str) -> bool {
    let entries: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    entries.iter().any(|entry| SECRETS.iter().any(|name| entry.get(name).is_some()))
}

/// An error: a problem was added to the reader.
#[derive(Debug)]
pub(super) struct HasProblem;

/// Reads the configuration of calls. `None`: the agent may call nobody.
pub(super) fn read(
    reader: &mut Reader<'_>,
    context: &ProcessContext,
    client: &Settings,
) -> Result<Option<PeersConfig>, HasProblem> {
    let allow_urls = reader.switch(&table::CALLS_URLS);
    // Without peers, a wrong value of these settings is only a warning: other programs have variables with the same names, and
    // these must not keep the gateway from starting.
    let is_on = allow_urls || reader.written(&PEERS).is_some();
    let (hosts, allow_private) = if is_on {
        (hosts(reader), reader.switch(&table::CALLS_PRIVATE_HOSTS))
    } else {
        let are_hosts = |words: Vec<String>| words.iter().all(|word| HostRule::parse(word).is_some());
        warn_unless(reader, &table::CALLS_HOSTS, |text| parse_list(text).is_some_and(are_hosts));
        warn_unless(reader, &table::CALLS_PRIVATE_HOSTS, |text| parse_switch(text).is_some());
        (Vec::new(), false)
    };
    let (at_once, per_task) = (reader.size(&table::CALLS_AT_ONCE), reader.size(&table::CALLS_PER_TASK));
    let (duration, result_bytes) =
        (reader.seconds(&table::CALLS_DURATION), reader.size(&table::CALLS_RESULT_BYTES));
    let (asks, longest) = (reader.count_or_none(&table::CALLS_ASKS), reader.size(&table::CALLS_HOPS));
    let returns = reader.count_or_none(&table::CALLS_RETURNS);
    let whole =
        |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok()).ok_or(HasProblem);
    let limits = CallLimits {
        duration: duration.ok_or(HasProblem)?,
        result_bytes: whole(result_bytes)?,
        asks: u32::try_from(asks.ok_or(HasProblem)?).unwrap_or(u32::MAX),
    };
    let fallback = Settings { limits: CLIENT_LIMITS, polling: None, ..client.clone() };
    let peers = entries(reader, context, &Defaults { settings: &fallback, limits, hosts: &hosts })
        .ok_or(HasProblem)?;
    if peers.is_empty() && !allow_urls {
        return Ok(None);
    }
    let rules = Rules {
        schemes: if allow_private { vec![Scheme::Https, Scheme::Http] } else { vec![Scheme::Https] },
        hosts,
        internal_networks: if allow_private { private_networks() } else { Vec::new() },
        ..Rules::default()
    };
    let urls = allow_urls.then(|| UrlRules {
        guard: Guard::new(rules),
        resolver: Arc::new(SystemResolver::default()),
        settings: Settings { credential: None, ..fallback },
        limits,
    });
    let hops = HopRules { longest: whole(longest)?, returns: returns.ok_or(HasProblem)? };
    let (at_once, per_task, in_all) = (whole(at_once)?, whole(per_task)?, InAll::default());
    Ok(Some(PeersConfig { peers, urls, at_once, per_task, in_all, hops }))
}

fn private_networks() -> Vec<IpNet> {
    PRIVATE.iter().filter_map(|network| network.parse().ok()).collect()
}

/// Adds a warning if the setting has a value that is not allowed.
fn warn_unless(reader: &mut Reader<'_>, setting: &Setting, is_good: impl Fn(&str) -> bool) {
    if let Some(written) = reader.written(setting).filter(|written| !is_good(&written.text)) {
        reader.warn(Problem::value(&written.source, setting, &written.text).0);
    }
}

fn hosts(reader: &mut Reader<'_>) -> Vec<HostRule> {
    let words = reader.list(&table::CALLS_HOSTS);
    if let Some(wrong) = words.iter().find(|word| HostRule::parse(word).is_none())
        && let Some(written) = reader.written(&table::CALLS_HOSTS)
    {
        let reason =
            format!("{wrong:?} is not a host name, such as agents.example.com, or *. and a host name");
        reader.problem(Problem::rule(&written.source, &table::CALLS_HOSTS, reason));
    }
    words.iter().filter_map(|word| HostRule::parse(word)).collect()
}

/// The settings of a peer whose entry does not set them itself.
struct Defaults<'a> {
    settings: &'a Settings,
    limits: CallLimits,
    /// The hosts to which the default credential may be sent.
    hosts: &'a [HostRule],
}

fn entries(reader: &mut Reader<'_>, context: &ProcessContext, defaults: &Defaults<'_>) -> Option<Vec<Peer>> {
    let Some(written) = reader.written(&PEERS) else { return Some(Vec::new()) };
    let list = match serde_json::from_str(&written.text) {
        Ok(Value::Array(list)) => list,
        // Do not show the parse error, because it could contain a part of a secret.
        Ok(_) => {
            reader.problem(Problem::rule(&written.source, &PEERS, "must be a list of tables"));
            return None;
        }
        Err(error) => {
            let reason = format!("is not JSON (line {}, column {})", error.line(), error.column());
            reader.problem(Problem::rule(&written.source, &PEERS, reason));
            return None;
        }
    };
    let mut peers: Vec<Option<Peer>> = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let none = Map::new();
        let fields = value.as_object().unwrap_or(&none);
        let at = format!("{}[{index}]", PEERS.key);
        let mut entry = Table { reader, written: &written, at, fields, is_good: true };
        if !value.is_object() {
            entry.wrong("", "must be a table of fields");
        }
        let peer = entry.peer(context, defaults);
        if let Some(peer) = &peer
            && peers.iter().flatten().any(|other| other.name == peer.name)
        {
            entry.wrong("name", "names two peers; each needs a name of its own");
        }
        peers.push(peer.filter(|_| entry.is_good));
    }
    peers.into_iter().collect()
}

impl Table<'_, '_> {
    /// Reads an entry. Reads every field even after a problem, so that all problems are shown at once.
    fn peer(&mut self, context: &ProcessContext, defaults: &Defaults<'_>) -> Option<Peer> {
        self.check_names(&FIELDS);
        let name = self.peer_name();
        let url = self.url();
        let description = self.text("description");
        let version = self.version();
        let bindings = self.bindings();
        let credential = self.credential(context);
        let fallback = defaults.settings;
        let limits = CallLimits {
            duration: self.timeout("call_timeout").unwrap_or(defaults.limits.duration),
            result_bytes: self.number("max_result_bytes", 1).unwrap_or(defaults.limits.result_bytes),
            asks: self
                .number("max_asks", 0)
                .map_or(defaults.limits.asks, |asks| u32::try_from(asks).unwrap_or(u32::MAX)),
        };
        let (timeout, card_timeout) = (self.timeout("timeout"), self.timeout("card_timeout"));
        let model_answers = match self.fields.get("model_answers") {
            None => true,
            Some(Value::Bool(is_on)) => *is_on,
            Some(_) => {
                self.wrong("model_answers", "must be true or false");
                true
            }
        };
        let (name, url) = (name?, url?);
        let credential = credential.or_else(|| self.default_credential(&name, &url, defaults));
        let settings = Settings {
            timeout: timeout.unwrap_or(fallback.timeout),
            card_timeout: card_timeout.unwrap_or(fallback.card_timeout),
            version: version.or(fallback.version),
            prefers_own_order: bindings.is_some() || fallback.prefers_own_order,
            bindings: bindings.unwrap_or_else(|| fallback.bindings.clone()),
            credential,
            ..fallback.clone()
        };
        Some(Peer { name, description, url: url.into(), settings, limits, model_answers })
    }

    fn peer_name(&mut self) -> Option<String> {
        let name = self.required("name")?;
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.len() > MAX_NAME || !name.chars().all(is_of_name) {
            self.wrong("name", "must be at most 40 letters, digits, dots, hyphens and underscores");
            return None;
        }
        Some(name)
    }

    fn url(&mut self) -> Option<Url> {
        let text = self.required("url")?;
        let has_login = |url: &Url| !url.username().is_empty() || url.password().is_some();
        let url =
            Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.filter(|url| !has_login(url));
        if url.is_none() {
            self.wrong("url", "must be an http or https URL without a user name or password");
        }
        url
    }

    fn version(&mut self) -> Option<ProtocolVersion> {
        let text = self.text("version")?;
        let version = ProtocolVersion::ALL.into_iter().find(|version| version.as_str() == text);
        if version.is_none() {
            self.wrong("version", "must be \"1.0\" or \"0.3\"");
        }
        version
    }

    /// Reads the bindings, in order of preference.
    fn bindings(&mut self) -> Option<Vec<Binding>> {
        let list = self.fields.get("bindings")?;
        let words = list.as_array().into_iter().flatten();
        let bindings: Option<Vec<Binding>> = words.map(|word| Binding::parse(word.as_str()?)).collect();
        let bindings = bindings.filter(|bindings| !bindings.is_empty());
        if bindings.is_none() {
            self.wrong("bindings", "must be a list of JSONRPC, HTTP+JSON and GRPC");
        }
        bindings
    }

    /// Reads the credential of the entry. If it has several, the bearer token has priority, then the user name and password.
    fn credential(&mut self, context: &ProcessContext) -> Option<Credential> {
        let bearer = self.secret("bearer_token", context).map(Credential::Bearer);
        let basic = self.secret("basic_auth", context).and_then(|text| {
            let basic = client::basic_of(&text);
            if basic.is_none() {
                self.wrong("basic_auth", "must be user:password, or its base64");
            }
            basic
        });
        let api_key = self.secret("api_key", context).map(Credential::ApiKey);
        bearer.or(basic).or(api_key)
    }

    /// Reads a secret from the field `name`, or from the variable that the field `<name>_env` names. Messages show no value.
    fn secret(&mut self, name: &str, context: &ProcessContext) -> Option<SecretString> {
        let from = format!("{name}_env");
        if let Some(variable) = self.text(&from) {
            let value = context.environment.get(&variable).map(str::trim).filter(|value| !value.is_empty());
            if value.is_none() {
                self.wrong(&from, "names a variable that is not set");
            }
            return value.map(SecretString::from);
        }
        self.text(name).map(SecretString::from)
    }

    /// The default credential for all peers, if it may be sent to this one.
    fn default_credential(&mut self, name: &str, url: &Url, defaults: &Defaults<'_>) -> Option<Credential> {
        let credential = defaults.settings.credential.as_ref()?;
        let host = url.host_str().unwrap_or_default();
        if defaults.hosts.iter().any(|rule| rule.matches(host)) {
            return Some(credential.clone());
        }
        self.reader.warn(format!(
            "the peer {name} gets no credential: it has none of its own, and {host} is not in {}, so the one of client.* is not sent \
             to it",
            table::CALLS_HOSTS.key
        ));
        None
    }

    fn timeout(&mut self, name: &str) -> Option<Duration> {
        self.seconds(name, "must be a number of seconds above 0, at most 366 days", Duration::from_nanos(1))
    }

    fn number(&mut self, name: &str, least: u64) -> Option<usize> {
        let number = self.fields.get(name)?.as_u64().filter(|number| *number >= least);
        let number = number.and_then(|number| usize::try_from(number).ok());
        if number.is_none() {
            self.wrong(name, &format!("must be a whole number, {least} or more"));
        }
        number
    }
}
