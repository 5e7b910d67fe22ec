//! The configuration of OpenCode: the bridge as an MCP server, and the plugin that names the session of each tool call.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use longshore_model::CALLER_ARGUMENT;
use serde_json::{Map, Value, json};

use crate::{SOCKET, SOCKET_VARIABLE, Secret, TOKEN_VARIABLE, Token};

/// The name of the MCP server. OpenCode puts this name before each tool name, so the model sees `longshore_a2a_call`.
pub const SERVER: &str = "longshore";

/// How long OpenCode waits for an answer of the bridge. Each progress notification restarts the wait. The value is OpenCode's
/// default.
const TIMEOUT_MS: u32 = 60_000;

/// Two files in the data directory: the plugin, and a configuration for an OpenCode that the gateway does not start.
pub const PLUGIN: &str = "opencode-plugin.js";
pub const CONFIGURATION: &str = "opencode.json";

/// The purpose from which plugin and gateway derive the key of the proofs.
const PURPOSE: &str = "proofs of the plugin in OpenCode";

/// The settings that point OpenCode to the files in the data directory.
#[derive(Debug)]
pub struct OpenCodeFiles {
    plugin: Value,
    server: Value,
}

impl OpenCodeFiles {
    /// Writes the plugin, and a configuration for an OpenCode that the gateway does not start. `program`: the path of the
    /// `longshore` that OpenCode starts as the bridge.
    pub fn write(data_dir: &Path, program: &Path, secret: &Secret) -> io::Result<Self> {
        let plugin = data_dir.join(PLUGIN);
        write_private(&plugin, &plugin_text(secret))?;
        let files = Self {
            plugin: json!(format!("file://{}", plugin.display())),
            server: json!({
                "type": "local",
                "command": [program, "mcp"],
                "environment": {
                    SOCKET_VARIABLE: data_dir.join(SOCKET),
                    TOKEN_VARIABLE: Token::OpenCode.write(secret),
                },
                "enabled": true,
                "timeout": TIMEOUT_MS,
            }),
        };
        write_private(&data_dir.join(CONFIGURATION), &format!("{:#}\n", files.configuration()))?;
        Ok(files)
    }

    /// OpenCode's configuration with the MCP server and the plugin.
    pub fn configuration(&self) -> Value {
        json!({"$schema": "https://opencode.ai/config.json", "mcp": {SERVER: self.server}, "plugin": [self.plugin]})
    }
}

/// Merges our configuration into the text that `OPENCODE_CONFIG_CONTENT` already has. `None`: that text is no JSON object.
pub fn merged(existing: Option<&str>, ours: &Value) -> Option<String> {
    let mut all: Map<String, Value> = match existing.filter(|text| !text.trim().is_empty()) {
        Some(text) => serde_json::from_str(text).ok()?,
        None => Map::new(),
    };
    for (name, value) in ours.as_object().into_iter().flatten() {
        match (all.get_mut(name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new.clone()),
            (Some(Value::Array(old)), Value::Array(new)) => old.extend(new.iter().cloned()),
            (Some(_), Value::String(_)) => {}
            _ => drop(all.insert(name.clone(), value.clone())),
        }
    }
    Some(Value::Object(all).to_string())
}

/// The key with which the plugin signs its proofs.
pub(crate) fn plugin_key(secret: &Secret) -> String {
    secret.derived_key(PURPOSE)
}

/// The source of the plugin. The plugin overwrites what the model wrote into the argument. The key is in this file and not in the
/// environment, because a model can read the environment of OpenCode with one command.
fn plugin_text(secret: &Secret) -> String {
    format!(
        r#"// Written by Longshore at each start. It tells the gateway which session makes a call of an `a2a_*` tool.
import {{ createHmac }} from "node:crypto"

const key = "{key}"

const sign = (...words) => {{
  const hmac = createHmac("sha256", key)
  for (const word of words) hmac.update(word + "\0")
  return hmac.digest("base64url")
}}

export const Longshore = async () => ({{
  "tool.execute.before": async ({{ tool, sessionID, callID }}, {{ args }}) => {{
    if (!tool.startsWith("{SERVER}_") || !args) return
    args.{CALLER_ARGUMENT} = {{ session: sessionID, call: callID, proof: sign(sessionID, callID) }}
  }},
}})
"#,
        key = plugin_key(secret),
    )
}

/// Replaces the file atomically. Only the owner can read it.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_files_are_private_and_the_configuration_has_no_key() {
        let data_dir = tempfile::tempdir().unwrap();
        let secret = Secret::new([3; 32]);
        let files = OpenCodeFiles::write(data_dir.path(), Path::new("/bin/longshore"), &secret).unwrap();
        let files = OpenCodeFiles::write(data_dir.path(), Path::new("/bin/longshore"), &secret)
            .map(|again| assert_eq!(again.configuration(), files.configuration()))
            .map(|()| files)
            .unwrap();
        for name in [PLUGIN, CONFIGURATION] {
            let mode = data_dir.path().join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let key = plugin_key(&secret);
        assert!(std::fs::read_to_string(data_dir.path().join(PLUGIN)).unwrap().contains(&key));
        let configuration = files.configuration();
        assert!(!configuration.to_string().contains(&key));
        assert_eq!(configuration["mcp"]["longshore"]["command"], json!(["/bin/longshore", "mcp"]));
    }

    #[test]
    fn the_users_own_configuration_is_kept() {
        let ours = json!({"$schema": "s", "mcp": {"longshore": 1}, "plugin": ["ours"]});
        let check = |existing: Option<&str>, expected: Option<Value>| {
            let merged = merged(existing, &ours);
            assert_eq!(
                merged.map(|text| serde_json::from_str::<Value>(&text).unwrap()),
                expected,
                "{existing:?}"
            );
        };
        check(None, Some(ours.clone()));
        check(Some(" "), Some(ours.clone()));
        check(
            Some(r#"{"model": "m", "mcp": {"own": 2, "longshore": 3}, "plugin": ["own"], "$schema": "o"}"#),
            Some(
                json!({"model": "m", "mcp": {"own": 2, "longshore": 1}, "plugin": ["own", "ours"], "$schema": "o"}),
            ),
        );
        check(Some("[]"), None);
        check(Some("{"), None);
    }
}
