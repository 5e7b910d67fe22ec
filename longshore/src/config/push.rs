//! Reads the settings of push notifications.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use longshore_engine::PushRules;
use longshore_engine::port::PushLimits;
use longshore_model::{PushEvents, PushWord};
use longshore_outbound::{HostRule, IpNet, Rules, Scheme, Timeouts};
use longshore_push::DeliveryRules;
use secrecy::SecretString;

use super::problem::Problem;
use super::read::Reader;
use super::setting::Setting;
use super::table;

/// The settings of push notifications.
#[derive(Clone, Debug)]
pub struct PushPlan {
    pub enabled: bool,
    pub rules: PushRules,
    /// The rules of the address guard for webhook URLs.
    pub receivers: Rules,
    pub delivery: DeliveryRules,
    pub timeouts: Timeouts,
    /// The sealing keys. `None`: they are in the data directory.
    pub keys: Option<SecretString>,
}

/// Reads the settings. `None`: a problem was added to the reader.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<PushPlan> {
    let enabled = reader.switch(&table::PUSH);
    let words =
        parsed(reader, &table::PUSH_EVENTS, events, "is neither a state of a task, nor artifact or all");
    let limits = PushLimits {
        per_task: count(reader, &table::PUSH_CONFIGS_PER_TASK),
        per_principal: count(reader, &table::PUSH_CONFIGS_PER_PRINCIPAL),
        in_all: count(reader, &table::PUSH_CONFIGS),
    };
    let secret_bytes = reader.size(&table::PUSH_SECRET_BYTES);
    let has_http = reader.switch(&table::PUSH_HTTP);
    let host = "is not a host name, such as hooks.example.com, or *. and a host name";
    let receivers = Rules {
        schemes: if has_http { vec![Scheme::Https, Scheme::Http] } else { vec![Scheme::Https] },
        ports: parsed(reader, &table::PUSH_PORTS, ports, "is neither a port nor a range of ports"),
        hosts: parsed(reader, &table::PUSH_HOSTS, HostRule::parse, host),
        internal_hosts: parsed(reader, &table::PUSH_INTERNAL_HOSTS, HostRule::parse, host),
        internal_networks: parsed(
            reader,
            &table::PUSH_INTERNAL_NETWORKS,
            network,
            "is not a network, such as 10.1.2.0/24",
        ),
    };
    let events = words.into_iter().flatten().collect();
    let delivery = delivery(reader);
    let keys = reader.secret(&table::KEYS);
    Some(PushPlan {
        enabled,
        rules: PushRules { limits, max_secret_bytes: usize::try_from(secret_bytes?).ok()?, events },
        receivers,
        timeouts: delivery.as_ref()?.1,
        delivery: delivery?.0,
        keys,
    })
}

fn delivery(reader: &mut Reader<'_>) -> Option<(DeliveryRules, Timeouts)> {
    let attempts = reader.size(&table::PUSH_ATTEMPTS);
    let max_age = reader.seconds(&table::PUSH_MAX_AGE);
    let (calls, calls_per_host) = (reader.size(&table::PUSH_CALLS), reader.size(&table::PUSH_CALLS_PER_HOST));
    let connect = reader.seconds(&table::PUSH_CONNECT_TIMEOUT);
    let response = reader.seconds(&table::PUSH_RESPONSE_TIMEOUT);
    let max_body_bytes = reader.size(&table::PUSH_BODY_BYTES);
    let timeouts = Timeouts { connect: connect?, response: response?, ..Timeouts::default() };
    let rules = DeliveryRules {
        attempts: u32::try_from(attempts?).unwrap_or(u32::MAX),
        max_age: max_age?,
        calls: usize::try_from(calls?).ok()?,
        calls_per_host: usize::try_from(calls_per_host?).ok()?,
        max_body_bytes: usize::try_from(max_body_bytes?).ok()?,
        call_timeout: timeouts.connect + timeouts.response + timeouts.body,
    };
    Some((rules, timeouts))
}

fn count(reader: &mut Reader<'_>, setting: &Setting) -> u64 {
    reader.count(setting).unwrap_or(0) as u64
}

fn events(word: &str) -> Option<Vec<PushWord>> {
    match word {
        "all" => Some(PushEvents::ALL.words().collect()),
        _ => PushWord::parse(word).map(|word| vec![word]),
    }
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

/// Parses a network. A single address is a network of one.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Parses the elements of a list. A wrong element is a problem.
fn parsed<T>(
    reader: &mut Reader<'_>,
    setting: &Setting,
    parse: fn(&str) -> Option<T>,
    reason: &str,
) -> Vec<T> {
    let words = reader.list(setting);
    if let Some(wrong) = words.iter().find(|word| parse(word).is_none())
        && let Some(written) = reader.written(setting)
    {
        reader.problem(Problem::rule(&written.source, setting, format!("{wrong:?} {reason}")));
    }
    words.iter().filter_map(|word| parse(word)).collect()
}
