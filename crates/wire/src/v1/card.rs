//! The agent card of 1.0, with nothing of other lines in it: strict readers refuse unknown fields.

use bytes::Bytes;
use longshore_model::card::{AuthScheme, Binding, Card, Skill};

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
    if schemes.is_empty() {
        return;
    }
    object.object("securitySchemes", |object| {
        for scheme in schemes {
            object.object(scheme_name(*scheme), |object| write_scheme(object, *scheme));
        }
    });
    object.array("securityRequirements", schemes, |out, scheme| {
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
