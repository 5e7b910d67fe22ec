//! The agent card of 1.0, with nothing of other lines in it: strict readers refuse unknown fields.

use std::collections::BTreeSet;

use bytes::Bytes;
use longshore_model::card::{AuthScheme, Binding, Card, CardExtension, Skill};

use crate::json::ObjectWriter;

/// The header that carries an API key.
pub const API_KEY_HEADER: &str = "X-API-Key";

/// The same card always gives the same bytes, so that its hash can serve as an entity tag.
pub fn encode(card: &Card) -> Bytes {
    let mut out = Vec::with_capacity(2048);
    let mut object = ObjectWriter::begin(&mut out);
    object.text("name", &card.name);
    object.text("description", &card.description);
    object.array("supportedInterfaces", &card.interfaces, |out, interface| {
        let mut object = ObjectWriter::begin(out);
        object.text("url", &interface.url);
        object.text("protocolBinding", binding_name(interface.binding));
        object.text("protocolVersion", "1.0");
        object.end();
    });
    object.text("version", &card.version);
    object.some_text("documentationUrl", card.documentation_url.as_deref());
    object.object("capabilities", |object| {
        object.boolean("streaming", card.streaming);
        object.boolean("pushNotifications", false);
        object.some_array("extensions", &card.extensions, write_extension);
        object.boolean("extendedAgentCard", false);
    });
    write_security(&mut object, &card.schemes);
    object.texts("defaultInputModes", &card.input_modes);
    object.texts("defaultOutputModes", &card.output_modes);
    object.array("skills", &card.skills, write_skill);
    object.end();
    out.into()
}

fn binding_name(binding: Binding) -> &'static str {
    match binding {
        Binding::JsonRpc => "JSONRPC",
        Binding::Rest => "HTTP+JSON",
    }
}

/// Any one of the schemes lets a caller in, so each is a requirement of its own.
fn write_security(object: &mut ObjectWriter<'_>, schemes: &[AuthScheme]) {
    // Two tokens of one scheme are still one scheme.
    let schemes: BTreeSet<AuthScheme> = schemes.iter().copied().collect();
    if schemes.is_empty() {
        return;
    }
    object.object("securitySchemes", |object| {
        for scheme in &schemes {
            object.object(scheme_name(*scheme), |object| write_scheme(object, *scheme));
        }
    });
    object.array("securityRequirements", &schemes, |out, scheme| {
        let mut requirement = ObjectWriter::begin(out);
        requirement.object("schemes", |object| {
            object.object(scheme_name(*scheme), |scopes| scopes.texts("list", [""; 0]));
        });
        requirement.end();
    });
}

fn scheme_name(scheme: AuthScheme) -> &'static str {
    match scheme {
        AuthScheme::Bearer => "bearer",
        AuthScheme::Basic => "basic",
        AuthScheme::ApiKey => "apiKey",
    }
}

fn write_scheme(object: &mut ObjectWriter<'_>, scheme: AuthScheme) {
    match scheme {
        AuthScheme::Bearer => object.object("httpAuthSecurityScheme", |http| http.text("scheme", "Bearer")),
        AuthScheme::Basic => object.object("httpAuthSecurityScheme", |http| http.text("scheme", "Basic")),
        AuthScheme::ApiKey => object.object("apiKeySecurityScheme", |key| {
            key.text("location", "header");
            key.text("name", API_KEY_HEADER);
        }),
    }
}

fn write_extension(out: &mut Vec<u8>, extension: &CardExtension) {
    let mut object = ObjectWriter::begin(out);
    object.text("uri", &extension.uri);
    object.some_text("description", Some(&extension.description));
    if extension.required {
        object.boolean("required", true);
    }
    if let Some(params) = &extension.params {
        object.json("params", params);
    }
    object.end();
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
    object.end();
}

#[cfg(test)]
mod tests {
    use a2a_pb::protojson::{AgentCard, security_scheme::Scheme};
    use longshore_model::card::Interface;

    use super::*;
    use crate::extension::{Extension, declared, mark_required};

    fn card() -> Card {
        Card {
            name: "Longshore".to_owned(),
            description: "A coding agent.".to_owned(),
            version: "0.1.0".to_owned(),
            documentation_url: Some("https://example.com/docs".to_owned()),
            interfaces: vec![
                Interface { url: "http://127.0.0.1:8000/".to_owned(), binding: Binding::JsonRpc },
                Interface { url: "http://127.0.0.1:8000".to_owned(), binding: Binding::Rest },
            ],
            streaming: true,
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
            }],
        }
    }

    #[test]
    fn a_card_with_everything_and_an_open_one() {
        insta::assert_snapshot!("full", std::str::from_utf8(&encode(&card())).unwrap());
        let open = Card {
            documentation_url: None,
            schemes: Vec::new(),
            skills: Vec::new(),
            extensions: Vec::new(),
            ..card()
        };
        insta::assert_snapshot!("open", std::str::from_utf8(&encode(&open)).unwrap());
    }

    #[test]
    fn the_official_types_read_it() {
        let theirs: AgentCard = serde_json::from_slice(&encode(&card())).unwrap();
        let interfaces: Vec<_> = theirs
            .supported_interfaces
            .iter()
            .map(|interface| (interface.protocol_binding.as_str(), interface.protocol_version.as_str()))
            .collect();
        assert_eq!(interfaces, [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")]);
        let capabilities = theirs.capabilities.unwrap();
        assert_eq!(capabilities.streaming, Some(true));
        let uris: Vec<&str> = capabilities.extensions.iter().map(|theirs| theirs.uri.as_str()).collect();
        assert_eq!(uris, Extension::PUBLIC.map(Extension::uri));
        for theirs in &capabilities.extensions {
            assert!(!theirs.required && theirs.params.is_some(), "{theirs:?}");
        }
        let mut strict = card();
        mark_required(&mut strict.extensions, &[Extension::StreamHints]);
        let strict: AgentCard = serde_json::from_slice(&encode(&strict)).unwrap();
        let required: Vec<bool> =
            strict.capabilities.unwrap().extensions.iter().map(|theirs| theirs.required).collect();
        assert_eq!(required, [false, false, true, false]);
        assert_eq!(theirs.documentation_url.as_deref(), Some("https://example.com/docs"));
        assert_eq!(theirs.default_output_modes, ["text/plain", "application/json"]);
        assert_eq!((theirs.skills.len(), theirs.skills[0].examples.len()), (1, 1));

        let Some(Scheme::HttpAuthSecurityScheme(bearer)) = &theirs.security_schemes["bearer"].scheme else {
            panic!("{:?}", theirs.security_schemes)
        };
        assert_eq!(bearer.scheme, "Bearer");
        let Some(Scheme::ApiKeySecurityScheme(key)) = &theirs.security_schemes["apiKey"].scheme else {
            panic!("{:?}", theirs.security_schemes)
        };
        assert_eq!((key.location.as_str(), key.name.as_str()), ("header", API_KEY_HEADER));
        // Each requirement names one scheme, and that scheme is defined.
        assert_eq!(theirs.security_requirements.len(), 3);
        for requirement in &theirs.security_requirements {
            assert_eq!(requirement.schemes.len(), 1);
            assert!(requirement.schemes.keys().all(|name| theirs.security_schemes.contains_key(name)));
        }
    }
}
