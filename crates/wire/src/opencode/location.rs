//! Reads the directory or workspace in the metadata of a call.

use longshore_model::WorkspaceId;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ids;
use crate::json::{Fault, Read, is_null, text};
use crate::methods::{Location, MAX_LINE, Members, Routing, line, plain, schema};

pub(super) const ROUTING: Routing = Routing { read, fields };

fn fields() -> Value {
    json!({
        "directory": schema::text(MAX_LINE, true),
        "workspace": {
            "type": "object",
            "properties": {"id": schema::id(ids::WORKSPACE)},
            "additionalProperties": true,
        },
    })
}

/// Reads the object. Blank text counts as absent, as in the metadata of messages.
fn read(raw: &RawValue) -> Read<Location> {
    let opencode = plain(raw)?;
    let field = |members: &Members<'_>, name: &str| {
        let written = members.get(name).filter(|member| !is_null(member.raw));
        let written =
            written.map(|member| text(member.raw)).transpose().map_err(|fault| fault.under(name))?;
        Ok(written.filter(|text| !text.trim().is_empty()))
    };
    let directory = field(&opencode, "directory")?;
    if let Some(directory) = &directory {
        line(directory, MAX_LINE, false).map_err(|fault| fault.under("directory"))?;
    }
    let workspace = match opencode.get("workspace").filter(|member| !is_null(member.raw)) {
        Some(member) => plain(member.raw)
            .and_then(|members| {
                let id = field(&members, "id")?;
                id.map(|id| workspace_id(&id).map_err(|fault| fault.under("id"))).transpose()
            })
            .map_err(|fault| fault.under("workspace"))?,
        None => None,
    };
    Ok(Location { directory, workspace })
}

fn workspace_id(text: &str) -> Read<WorkspaceId> {
    let id = WorkspaceId::parse(text).map_err(|error| Fault::new(error.to_string()))?;
    let prefix = ids::WORKSPACE.prefix;
    if text.starts_with(prefix) {
        Ok(id)
    } else {
        Err(Fault::new(format!("must begin with {prefix}, as OpenCode's ids do")))
    }
}
