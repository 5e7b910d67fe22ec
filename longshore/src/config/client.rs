//! Reads the settings of the commands that call an agent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_client::{Binding, CardCache, Credential, Polling, ProtocolVersion, Settings};
use secrecy::{ExposeSecret as _, SecretString};

use super::problem::Problem;
use super::read::Reader;
use super::table;

/// Reads the settings for calling an agent by its URL. Adds a problem to the reader for each wrong value.
pub(super) fn read(reader: &mut Reader<'_>) -> Settings {
    let fallback = Settings::default();
    Settings {
        timeout: reader.seconds(&table::CLIENT_TIMEOUT).unwrap_or(fallback.timeout),
        card_timeout: reader.seconds(&table::CLIENT_CARD_TIMEOUT).unwrap_or(fallback.card_timeout),
        bindings: bindings(reader),
        prefers_own_order: reader.switch(&table::CLIENT_OWN_ORDER),
        version: version(reader),
        polling: polling(reader),
        cache: CardCache {
            capacity: reader.count_or_none(&table::CLIENT_CACHE_SIZE).unwrap_or(fallback.cache.capacity),
            lifetime: reader.seconds_or_off(&table::CLIENT_CACHE_LIFETIME),
        },
        credential: credential(reader),
        ..fallback
    }
}

fn bindings(reader: &mut Reader<'_>) -> Vec<Binding> {
    let names = reader.list(&table::CLIENT_TRANSPORTS);
    let (known, other): (Vec<_>, Vec<_>) =
        names.iter().map(|name| (name, Binding::parse(name))).partition(|(_, binding)| binding.is_some());
    if !other.is_empty()
        && let Some(written) = reader.written(&table::CLIENT_TRANSPORTS)
    {
        let reason = "must name JSONRPC, HTTP+JSON or GRPC";
        reader.problem(Problem::rule(&written.source, &table::CLIENT_TRANSPORTS, reason));
    }
    known.into_iter().filter_map(|(_, binding)| binding).collect()
}

fn version(reader: &mut Reader<'_>) -> Option<ProtocolVersion> {
    let wanted = reader.choice(&table::CLIENT_PROTOCOL_VERSION)?;
    ProtocolVersion::ALL.into_iter().find(|version| version.as_str() == wanted)
}

/// Reads the polling settings. `None`: polling is off. Reads all of them even then, so that wrong values are noticed.
fn polling(reader: &mut Reader<'_>) -> Option<Polling> {
    let fallback = Polling::default();
    let polling = Polling {
        initial: reader.seconds(&table::CLIENT_POLLING_INITIAL).unwrap_or(fallback.initial),
        longest: reader.seconds(&table::CLIENT_POLLING_LONGEST).unwrap_or(fallback.longest),
        factor: reader.factor(&table::CLIENT_POLLING_FACTOR).unwrap_or(fallback.factor),
        timeout: reader.seconds(&table::CLIENT_POLLING_TIMEOUT).or(fallback.timeout),
    };
    if polling.longest < polling.initial
        && let Some(written) = reader
            .written(&table::CLIENT_POLLING_LONGEST)
            .or_else(|| reader.written(&table::CLIENT_POLLING_INITIAL))
    {
        let reason = format!("must not be less than {}", table::CLIENT_POLLING_INITIAL.key);
        reader.problem(Problem::rule(&written.source, &table::CLIENT_POLLING_LONGEST, &reason));
    }
    reader.switch(&table::CLIENT_POLLING).then_some(polling)
}

fn credential(reader: &mut Reader<'_>) -> Option<Credential> {
    let bearer = reader.secret(&table::CLIENT_BEARER_TOKEN).map(Credential::Bearer);
    let basic = reader.secret(&table::CLIENT_BASIC_AUTH).and_then(|text| {
        let basic = basic(text.expose_secret());
        if basic.is_none()
            && let Some(written) = reader.written(&table::CLIENT_BASIC_AUTH)
        {
            let reason = "must be user:password, or its base64";
            reader.problem(Problem::rule(&written.source, &table::CLIENT_BASIC_AUTH, reason));
        }
        basic
    });
    let api_key = reader.secret(&table::CLIENT_API_KEY).map(Credential::ApiKey);
    bearer.or(basic).or(api_key)
}

/// Reads a user name and a password in the form of `client.basic_auth`.
pub(super) fn basic_of(text: &SecretString) -> Option<Credential> {
    basic(text.expose_secret())
}

fn basic(text: &str) -> Option<Credential> {
    let decoded = || String::from_utf8(STANDARD.decode(text).ok()?).ok();
    let pair = if text.contains(':') { text.to_owned() } else { decoded()? };
    let (username, password) = pair.split_once(':')?;
    Some(Credential::Basic { username: username.to_owned(), password: SecretString::from(password) })
}
