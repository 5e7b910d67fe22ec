//! Writes the agent card: the same facts for both versions, with the fields of one version or of both.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use longshore_model::card::{AuthScheme, Binding, Card, CardExtension, Interface, Skill};

use crate::extension::as_of_v03;
use crate::json::ObjectWriter;
use crate::surface::ProtocolVersion;
use crate::v1::card::API_KEY_HEADER;

/// The versions for which a card has fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CardVersions {
    V1,
    V03,
    /// 0.3, with security schemes that ProtoJSON readers also understand.
    V03Rest,
    Both,
}

impl CardVersions {
    fn has_v1(self) -> bool {
        matches!(self, Self::V1 | Self::Both)
    }

    fn has_v03(self) -> bool {
        self != Self::V1
    }
}

/// Writes a card. The same card always results in the same bytes.
pub(crate) fn encode(card: &Card, versions: CardVersions) -> Bytes {
    let mut out = Vec::with_capacity(4096);
    let mut object = ObjectWriter::begin(&mut out);
    object.text("name", &card.name);
    object.text("description", &card.description);
    if versions.has_v03() {
        write_transports(&mut object, card);
    }
    if versions.has_v1() {
        write_interfaces(&mut object, card, versions);
    }
    object.text("version", &card.version);
    object.some_text("documentationUrl", card.documentation_url.as_deref());
    object.object("capabilities", |object| {
        object.boolean("streaming", card.streaming);
        object.boolean("pushNotifications", card.push);
        if !versions.has_v1() {
            // The gateway keeps the history of a task, but not as a list of its states.
            object.boolean("stateTransitionHistory", false);
        }
        write_extensions(object, &card.extensions, versions);
        if versions.has_v1() {
            object.boolean("extendedAgentCard", card.extended);
        }
    });
    write_security(&mut object, &card.schemes, versions);
    object.texts("defaultInputModes", &card.input_modes);
    object.texts("defaultOutputModes", &card.output_modes);
    object.array("skills", &card.skills, write_skill);
    if versions.has_v03() {
        object.boolean("supportsAuthenticatedExtendedCard", card.extended);
    }
    object.end();
    out.into()
}

/// The bindings that A2A does not define. They are listed after those that A2A defines, because most clients do not know them.
const CUSTOM: [Binding; 2] = [Binding::WebSocket, Binding::Stdio];

/// The A2A bindings of a version, the preferred one first. Each version keeps the order of its first servers.
pub(crate) fn bindings(version: ProtocolVersion) -> [Binding; 3] {
    match version {
        ProtocolVersion::V1 => [Binding::JsonRpc, Binding::Rest, Binding::Grpc],
        ProtocolVersion::V03 => [Binding::Rest, Binding::JsonRpc, Binding::Grpc],
    }
}

/// The interfaces of a card in the order of this version.
fn interfaces(card: &Card, version: ProtocolVersion) -> impl Iterator<Item = &Interface> {
    let with = |binding| card.interfaces.iter().filter(move |interface| interface.binding == binding);
    bindings(version).into_iter().chain(CUSTOM).flat_map(with)
}

/// Writes the endpoints at which 0.3 is served, the preferred interface first.
fn write_transports(object: &mut ObjectWriter<'_>, card: &Card) {
    object.text("protocolVersion", "0.3.0");
    if let Some(preferred) = interfaces(card, ProtocolVersion::V03).next() {
        object.text("url", &preferred.url);
        object.text("preferredTransport", binding_name(preferred.binding));
    }
    // Strict clients of 0.3 refuse a whole card with a transport that they do not know.
    let known = |interface: &&Interface| interface.binding != Binding::WebSocket;
    let listed = interfaces(card, ProtocolVersion::V03).filter(known);
    object.array("additionalInterfaces", listed, |out, interface| {
        let mut object = ObjectWriter::begin(out);
        object.text("url", &interface.url);
        object.text("transport", binding_name(interface.binding));
        object.end();
    });
}

/// The entries of `supportedInterfaces`. The client takes the first one that it supports, so 1.0 comes first.
pub(crate) fn supported(card: &Card, with_v03: bool) -> impl Iterator<Item = (&Interface, ProtocolVersion)> {
    let versions = [Some(ProtocolVersion::V1), with_v03.then_some(ProtocolVersion::V03)];
    let of = |version| interfaces(card, version).map(move |interface| (interface, version));
    versions.into_iter().flatten().flat_map(of)
}

/// Writes the endpoints at which a 1.0 client finds each version.
fn write_interfaces(object: &mut ObjectWriter<'_>, card: &Card, versions: CardVersions) {
    object.array("supportedInterfaces", supported(card, versions.has_v03()), |out, (interface, version)| {
        let mut object = ObjectWriter::begin(out);
        object.text("url", &v1_url(interface));
        object.text("protocolBinding", binding_name(interface.binding));
        object.text("protocolVersion", version.as_str());
        object.end();
    });
}

/// The address of an interface in 1.0. For gRPC this is only the host and port, which clients pass unchanged to their gRPC library.
/// The port is always written, because without one each client would assume another. In 0.3 every interface has a URL.
pub(crate) fn v1_url(interface: &Interface) -> Cow<'_, str> {
    let (Binding::Grpc, Some((scheme, address))) = (interface.binding, interface.url.split_once("://"))
    else {
        return Cow::Borrowed(&interface.url);
    };
    // All other colons of an IPv6 address are inside its brackets.
    let has_port = address.rsplit(']').next().is_some_and(|end| end.contains(':'));
    match (has_port, scheme) {
        (true, _) => Cow::Borrowed(address),
        (false, "https") => Cow::Owned(format!("{address}:443")),
        (false, _) => Cow::Owned(format!("{address}:80")),
    }
}

/// The name of a binding. For a binding that A2A does not define, this is a URI.
pub(crate) fn binding_name(binding: Binding) -> &'static str {
    match binding {
        Binding::JsonRpc => "JSONRPC",
        Binding::Rest => "HTTP+JSON",
        Binding::Grpc => "GRPC",
        Binding::WebSocket => "urn:longshore:binding:websocket:v1",
        Binding::Stdio => "urn:longshore:binding:stdio:v1",
    }
}

/// Writes the extensions. An extension can have different URIs in the two protocol versions. A card for both versions then lists
/// the extension twice, once with each URI.
fn write_extensions(object: &mut ObjectWriter<'_>, extensions: &[CardExtension], versions: CardVersions) {
    let is_for_v1 = versions.has_v1();
    let newer = extensions.iter().filter(|_| is_for_v1).cloned();
    let older = extensions.iter().filter(|_| versions.has_v03()).map(as_of_v03);
    let older = older.filter(|entry| !is_for_v1 || extensions.iter().all(|newer| newer.uri != entry.uri));
    object.some_array("extensions", newer.chain(older), |out, extension| {
        write_extension(out, &extension, !is_for_v1);
    });
}

fn write_extension(out: &mut Vec<u8>, extension: &CardExtension, writes_false: bool) {
    let mut object = ObjectWriter::begin(out);
    object.text("uri", &extension.uri);
    object.some_text("description", Some(&extension.description));
    if extension.required || writes_false {
        object.boolean("required", extension.required);
    }
    if let Some(params) = &extension.params {
        object.json("params", params);
    }
    object.end();
}

/// Writes the security schemes. Each is a separate requirement, because a client needs only one of them.
fn write_security(object: &mut ObjectWriter<'_>, schemes: &[AuthScheme], versions: CardVersions) {
    // Two credentials of one scheme are still one scheme.
    let schemes: BTreeSet<AuthScheme> = schemes.iter().copied().collect();
    if schemes.is_empty() {
        return;
    }
    object.object("securitySchemes", |object| {
        for scheme in &schemes {
            object.object(scheme_name(*scheme), |object| {
                // A reader of one version ignores the fields of the other version in the same object.
                if versions != CardVersions::V03 {
                    write_scheme(object, *scheme);
                }
                if versions.has_v03() {
                    write_old_scheme(object, *scheme);
                }
            });
        }
    });
    if versions.has_v1() {
        object.array("securityRequirements", &schemes, |out, scheme| {
            let mut requirement = ObjectWriter::begin(out);
            requirement.object("schemes", |object| {
                object.object(scheme_name(*scheme), |scopes| scopes.texts("list", [""; 0]));
            });
            requirement.end();
        });
    }
    if versions.has_v03() {
        object.array("security", &schemes, |out, scheme| {
            let mut requirement = ObjectWriter::begin(out);
            requirement.texts(scheme_name(*scheme), [""; 0]);
            requirement.end();
        });
    }
}

/// The name of the scheme in the documents.
pub(crate) fn scheme_name(scheme: AuthScheme) -> &'static str {
    match scheme {
        AuthScheme::Bearer => "bearerAuth",
        AuthScheme::Basic => "basicAuth",
        AuthScheme::ApiKey => "apiKeyAuth",
        AuthScheme::MutualTls => "mutualTlsAuth",
    }
}

/// The fields of a scheme in 0.3, which are the fields that `OpenAPI` uses.
pub(crate) fn scheme_fields(scheme: AuthScheme) -> &'static [(&'static str, &'static str)] {
    // The scheme is in lower case because 0.3 clients compare it in that form. The standard permits either case.
    match scheme {
        AuthScheme::Bearer => &[
            ("type", "http"),
            ("scheme", "bearer"),
            ("bearerFormat", "opaque"),
            ("description", "A token that the operator of this agent gave you, in the header Authorization."),
        ],
        AuthScheme::Basic => &[
            ("type", "http"),
            ("scheme", "basic"),
            ("description", "A user name and a password that the operator of this agent gave you."),
        ],
        AuthScheme::ApiKey => &[
            ("type", "apiKey"),
            ("in", "header"),
            ("name", API_KEY_HEADER),
            ("description", "A key that the operator of this agent gave you."),
        ],
        AuthScheme::MutualTls => &[
            ("type", "mutualTLS"),
            ("description", "A client certificate that the operator of this agent has registered."),
        ],
    }
}

fn write_old_scheme(object: &mut ObjectWriter<'_>, scheme: AuthScheme) {
    for (name, value) in scheme_fields(scheme) {
        object.text(name, value);
    }
}

/// Writes a scheme in the form of 1.0: the kind is the key of the object, and some fields have other names than in 0.3.
fn write_scheme(object: &mut ObjectWriter<'_>, scheme: AuthScheme) {
    let kind = match scheme {
        AuthScheme::Bearer | AuthScheme::Basic => "httpAuthSecurityScheme",
        AuthScheme::ApiKey => "apiKeySecurityScheme",
        AuthScheme::MutualTls => "mtlsSecurityScheme",
    };
    object.object(kind, |object| {
        for (name, value) in scheme_fields(scheme) {
            match (*name, scheme) {
                ("type", _) => {}
                ("scheme", AuthScheme::Bearer) => object.text("scheme", "Bearer"),
                ("scheme", AuthScheme::Basic) => object.text("scheme", "Basic"),
                ("in", _) => object.text("location", value),
                _ => object.text(name, value),
            }
        }
    });
}

fn write_skill(out: &mut Vec<u8>, skill: &Skill) {
    let mut object = ObjectWriter::begin(out);
    object.text("id", &skill.id);
    object.text("name", &skill.name);
    object.text("description", &skill.description);
    object.texts("tags", &skill.tags);
    if !skill.examples.is_empty() {
        object.texts("examples", &skill.examples);
    }
    for (key, modes) in [("inputModes", &skill.input_modes), ("outputModes", &skill.output_modes)] {
        if !modes.is_empty() {
            object.texts(key, modes);
        }
    }
    object.end();
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::extension::Extension;
    use crate::extension::tests::declared;

    /// A card in which every field is set.
    pub(crate) fn card() -> Card {
        Card {
            name: "Longshore".to_owned(),
            description: "A coding agent.".to_owned(),
            version: "0.1.0".to_owned(),
            documentation_url: Some("https://example.com/docs".to_owned()),
            interfaces: vec![
                Interface { url: "http://127.0.0.1:8000/".to_owned(), binding: Binding::JsonRpc },
                Interface { url: "http://127.0.0.1:8000".to_owned(), binding: Binding::Rest },
                Interface { url: "http://127.0.0.1:8000".to_owned(), binding: Binding::Grpc },
            ],
            streaming: true,
            push: true,
            extended: true,
            extensions: declared(&Extension::PUBLIC),
            schemes: vec![AuthScheme::Basic, AuthScheme::Bearer, AuthScheme::ApiKey, AuthScheme::Bearer],
            input_modes: vec!["text/plain".to_owned()],
            output_modes: vec!["text/plain".to_owned(), "application/json".to_owned()],
            skills: vec![Skill {
                id: "code".to_owned(),
                name: "Write code".to_owned(),
                description: "Reads, writes and runs code.".to_owned(),
                tags: vec!["code".to_owned()],
                examples: vec!["Fix the failing test".to_owned()],
                input_modes: vec!["text/plain".to_owned()],
                output_modes: vec!["application/json".to_owned()],
            }],
        }
    }

    #[test]
    fn the_address_of_grpc_always_has_a_port_in_1_0() {
        let cases = [
            ("https://agent.example.com", "agent.example.com:443"),
            ("http://agent.example.com", "agent.example.com:80"),
            ("https://agent.example.com:8443", "agent.example.com:8443"),
            ("http://127.0.0.1:50051", "127.0.0.1:50051"),
            ("https://[2001:db8::1]", "[2001:db8::1]:443"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:50051", "[::1]:50051"),
        ];
        for (url, expected) in cases {
            let interface = |binding| Interface { url: url.to_owned(), binding };
            assert_eq!(v1_url(&interface(Binding::Grpc)), expected);
            assert_eq!(v1_url(&interface(Binding::Rest)), url);
        }
    }
}
