//! OpenCode's options in the metadata of a send: the object `metadata.opencode`.

use longshore_model::id::check_id;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::agent::directory_schema;
use crate::json::{Fault, Object, Read, text};
use crate::read::send_options::{MetadataOptions, field, line, lines};

/// The schema of the fields for the `OpenAPI` document.
pub(super) fn schema() -> Value {
    let line = directory_schema();
    json!({
        "directory": line,
        "workspace": {
            "type": "object",
            "properties": {"id": {"type": "string", "pattern": "^wrk"}},
            "additionalProperties": true,
        },
        "agent": line,
        "variant": line,
        "system": {"type": "string", "maxLength": 65536},
    })
}

pub(crate) fn read(raw: &RawValue, options: &mut MetadataOptions) -> Read<()> {
    let known = &["directory", "workspace", "agent", "variant", "system", "format"];
    let opencode = Object::read(raw, known)?;
    options.directory = field(&opencode, "directory", line)?;
    options.workspace = field(&opencode, "workspace", |raw| {
        let workspace = |raw: &RawValue| line(raw)?.map(workspace_id).transpose();
        field(&Object::read(raw, &["id"])?, "id", workspace)
    })?;
    options.prompt.agent = field(&opencode, "agent", line)?;
    options.prompt.variant = field(&opencode, "variant", line)?;
    options.prompt.system = field(&opencode, "system", lines)?;
    field(&opencode, "format", |raw| format(raw).map(Some))?;
    Ok(())
}

fn workspace_id(text: String) -> Read<String> {
    check_id(&text).map_err(|error| Fault::new(error.to_string()))?;
    if text.starts_with("wrk") {
        Ok(text)
    } else {
        Err(Fault::new("must begin with wrk, as OpenCode's ids do"))
    }
}

/// Refuses a JSON schema as output format. OpenCode accepts one, but can then no longer list the messages of that session.
fn format(raw: &RawValue) -> Read<()> {
    Object::read(raw, &["type"])?.required("type", |raw| match text(raw)?.as_str() {
        "text" => Ok(()),
        "json_schema" => Err(Fault::new(
            "json_schema is not supported: OpenCode cannot read such a session back; ask for JSON in the message's text",
        )),
        _ => Err(Fault::new("must be text")),
    })
}
