//! Agent cards of both versions, and the choice of an interface.

use longshore_wire::surface::ProtocolVersion;
use serde_json::Value;
use url::Url;

use crate::plain::is_plain;
use crate::settings::Settings;
use crate::{Error, ErrorKind, Result};

/// A transport binding of A2A.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binding {
    JsonRpc,
    Rest,
    Grpc,
}

impl Binding {
    pub const ALL: [Self; 3] = [Self::JsonRpc, Self::Rest, Self::Grpc];

    /// The spelling of the name on cards.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::Rest => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }

    /// Reads a name in the spelling of cards or of settings.
    pub fn parse(name: &str) -> Option<Self> {
        let plain: String =
            name.trim().to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        match plain.as_str() {
            "jsonrpc" => Some(Self::JsonRpc),
            "httpjson" | "rest" => Some(Self::Rest),
            "grpc" => Some(Self::Grpc),
            _ => None,
        }
    }
}

/// One entry of a card: the URL, binding and version with which the agent can be called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    pub url: Url,
    pub binding: Binding,
    pub version: ProtocolVersion,
    /// A tenant name that every request must contain. Empty: none.
    pub tenant: String,
}

/// The fields of a card that a client needs, and the whole card as JSON.
#[derive(Clone, PartialEq, Debug)]
pub struct Card {
    pub name: String,
    pub description: String,
    /// The version of the agent.
    pub version: String,
    /// The interfaces that this client can use, in the order of the card.
    pub interfaces: Vec<Interface>,
    pub streaming: bool,
    /// Whether the agent has an extended card for callers with a credential.
    pub has_extended: bool,
    /// The name of the header for an API key, if the agent accepts API keys.
    pub api_key_header: Option<String>,
    /// Descriptions of all interfaces on the card, usable or not, for error messages.
    offers: Vec<String>,
    pub json: Value,
}

impl Card {
    /// Reads a card. `url`: the URL of the card, against which relative URLs on the card are resolved.
    pub(crate) fn read(json: Value, url: &Url) -> Result<Self> {
        let no_card = |what: &str| {
            Error::invalid_response(format!("{url} is no agent card: {what}. Check the URL of the agent."))
        };
        if !json.is_object() {
            return Err(no_card("it is no JSON object"));
        }
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        let name = text("name");
        if name.is_empty() {
            return Err(no_card("it has no name"));
        }
        let listed = listed(&json);
        if listed.is_empty() {
            return Err(no_card("it names no interface"));
        }
        let offers = listed.iter().map(Listed::describe).collect();
        let mut interfaces: Vec<Interface> = Vec::new();
        for interface in listed.iter().filter_map(|listed| listed.usable(url)) {
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
        let capabilities = &json["capabilities"];
        Ok(Self {
            name,
            description: text("description"),
            version: text("version"),
            interfaces,
            streaming: capabilities["streaming"] == true,
            has_extended: capabilities["extendedAgentCard"] == true
                || json["supportsAuthenticatedExtendedCard"] == true,
            api_key_header: api_key_header(&json),
            offers,
            json,
        })
    }

    /// A copy of the card with only the allowed interfaces.
    #[must_use]
    pub fn only(&self, is_allowed: impl Fn(&Interface) -> bool) -> Self {
        let interfaces = self.interfaces.iter().filter(|interface| is_allowed(interface)).cloned().collect();
        Self { interfaces, ..self.clone() }
    }

    /// The first usable interface in the order of the card, or in the client's own order if `prefers_own_order` is set.
    pub fn choose(&self, settings: &Settings) -> Result<&Interface> {
        let mut usable = self.interfaces.iter().filter(|interface| {
            settings.bindings.contains(&interface.binding)
                && settings.version.is_none_or(|version| version == interface.version)
        });
        let chosen = if settings.prefers_own_order {
            // Of two interfaces with the same binding, `min_by_key` returns the first on the card.
            usable.min_by_key(|interface| settings.bindings.iter().position(|own| *own == interface.binding))
        } else {
            usable.next()
        };
        chosen.ok_or_else(|| {
            let wanted: Vec<_> = settings.bindings.iter().map(|binding| binding.as_str()).collect();
            Error::new(
                ErrorKind::NoInterface,
                format!(
                    "The agent {} offers no interface that can be used here. It offers: {}. Can be used: {} of A2A {}.",
                    shown(&self.name),
                    self.offers.join(", "),
                    wanted.join(", "),
                    settings.version.map_or("1.0 and 0.3", ProtocolVersion::as_str)
                ),
            )
        })
    }
}

/// An interface as the card lists it, not yet checked.
struct Listed<'a> {
    url: &'a str,
    binding: &'a str,
    version: &'a str,
    tenant: &'a str,
}

impl Listed<'_> {
    fn describe(&self) -> String {
        format!("{} of A2A {}", shown(self.binding), shown(self.version))
    }

    fn usable(&self, card: &Url) -> Option<Interface> {
        let binding = Binding::parse(self.binding)?;
        let url = if binding == Binding::Grpc { grpc_url(self.url, card) } else { card.join(self.url).ok() };
        Some(Interface {
            url: url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())?,
            binding,
            version: version(self.version)?,
            tenant: self.tenant.to_owned(),
        })
    }
}

/// The URL of a gRPC service. Some cards give only a host and a port; then TLS is used if the card was read over TLS.
fn grpc_url(address: &str, card: &Url) -> Option<Url> {
    let (scheme, place) = match address.split_once("://") {
        Some(("grpc", place)) => ("http", place),
        Some(("grpcs", place)) => ("https", place),
        Some((scheme, place)) => (scheme, place),
        None => (card.scheme(), address),
    };
    Url::parse(&format!("{scheme}://{place}")).ok()
}

/// A word of the card for an error message, shortened and without control characters.
fn shown(word: &str) -> String {
    word.chars().filter(|c| is_plain(*c)).take(40).collect()
}

/// All interfaces of a card: those of 1.0, then those of 0.3. A card can have both.
fn listed(card: &Value) -> Vec<Listed<'_>> {
    let mut all = Vec::new();
    for interface in card["supportedInterfaces"].as_array().into_iter().flatten() {
        all.push(Listed {
            url: word(interface, "url"),
            binding: word(interface, "protocolBinding"),
            version: word(interface, "protocolVersion"),
            tenant: word(interface, "tenant"),
        });
    }
    // The first cards of 0.3 do not name a version.
    let version = Some(word(card, "protocolVersion")).filter(|version| !version.is_empty()).unwrap_or("0.3");
    let old = |url, binding| Listed { url, binding, version, tenant: "" };
    if let Some(url) = card["url"].as_str() {
        let binding = Some(word(card, "preferredTransport")).filter(|binding| !binding.is_empty());
        all.push(old(url, binding.unwrap_or("JSONRPC")));
    }
    for interface in card["additionalInterfaces"].as_array().into_iter().flatten() {
        all.push(old(word(interface, "url"), word(interface, "transport")));
    }
    all
}

fn word<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

/// Reads an A2A version. 0.2 counts as 0.3, because it has the same methods and formats.
fn version(text: &str) -> Option<ProtocolVersion> {
    match text.split('.').collect::<Vec<_>>().as_slice() {
        ["1", ..] => Some(ProtocolVersion::V1),
        ["0", "2" | "3", ..] => Some(ProtocolVersion::V03),
        _ => None,
    }
}

fn api_key_header(card: &Value) -> Option<String> {
    let schemes = card["securitySchemes"].as_object()?;
    schemes.values().find_map(|scheme| {
        let (scheme, place) = match &scheme["apiKeySecurityScheme"] {
            Value::Object(_) => (&scheme["apiKeySecurityScheme"], "location"),
            _ if scheme["type"] == "apiKey" => (scheme, "in"),
            _ => return None,
        };
        (scheme[place] == "header").then(|| scheme["name"].as_str().map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(json: Value) -> Result<Card> {
        Card::read(json, &Url::parse("http://agent.example/base/card.json").unwrap())
    }

    fn chosen(json: Value, settings: &Settings) -> String {
        match card(json).unwrap().choose(settings) {
            Ok(interface) => {
                format!("{} {} {}", interface.binding.as_str(), interface.version.as_str(), interface.url)
            }
            Err(error) => error.message().to_owned(),
        }
    }

    fn merged() -> Value {
        json!({
            "name": "A", "url": "http://agent.example/old", "preferredTransport": "HTTP+JSON", "protocolVersion": "0.3.0",
            "supportedInterfaces": [
                {"url": "grpc.example:9", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": "/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "t"},
                {"url": "http://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            ],
        })
    }

    #[test]
    fn the_first_usable_interface_is_chosen_unless_the_client_has_an_order() {
        let rpc_only = Settings { bindings: vec![Binding::JsonRpc], ..Settings::default() };
        let own_order = Settings { prefers_own_order: true, ..Settings::default() };
        let http_only = Settings { bindings: vec![Binding::JsonRpc, Binding::Rest], ..Settings::default() };
        let old_only = Settings { version: Some(ProtocolVersion::V03), ..own_order.clone() };
        let future = json!({"name": "A", "supportedInterfaces": [
            {"url": "http://a/", "protocolBinding": "JSONRPC", "protocolVersion": "2.0"}]});
        let plain = json!({"name": "A", "url": "http://a/"});
        let cases = [
            (merged(), Settings::default(), "GRPC 1.0 http://grpc.example:9/"),
            (merged(), http_only, "HTTP+JSON 1.0 http://agent.example/rest"),
            (merged(), rpc_only, "JSONRPC 1.0 http://agent.example/rpc"),
            (merged(), own_order, "JSONRPC 1.0 http://agent.example/rpc"),
            (merged(), old_only, "HTTP+JSON 0.3 http://agent.example/old"),
            (plain, Settings::default(), "JSONRPC 0.3 http://a/"),
            (
                future,
                Settings::default(),
                "The agent A offers no interface that can be used here. It offers: JSONRPC of A2A 2.0. Can be used: JSONRPC, \
                 HTTP+JSON, GRPC of A2A 1.0 and 0.3.",
            ),
        ];
        for (json, settings, expected) in cases {
            assert_eq!(chosen(json, &settings), expected);
        }
        assert_eq!(card(merged()).unwrap().interfaces[1].tenant, "t");
    }

    #[test]
    fn what_is_no_card_is_refused_with_the_reason() {
        for (json, reason) in [
            (json!([]), "no JSON object"),
            (json!({"openapi": "3.1.0"}), "no name"),
            (json!({"name": "A"}), "no interface"),
        ] {
            let error = card(json).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidResponse);
            assert!(error.message().contains(reason), "{error}");
        }
    }

    #[test]
    fn the_header_of_an_api_key_is_read_in_both_versions() {
        for scheme in [
            json!({"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}),
            json!({"type": "apiKey", "in": "header", "name": "X-Key"}),
        ] {
            let json = json!({"name": "A", "url": "http://a/", "securitySchemes": {"s": scheme}});
            assert_eq!(card(json).unwrap().api_key_header.as_deref(), Some("X-Key"));
        }
    }
}
