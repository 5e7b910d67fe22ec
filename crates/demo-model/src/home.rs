//! A home directory for an OpenCode that talks only to the demo model.
//!
//! `make run` and the tests give OpenCode such a home, so that it neither reads nor writes the user's own
//! configuration, needs no account, and opens no connection off loopback.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde_json::{Value, json};

/// The OpenCode version that Longshore is tested with.
pub const OPENCODE_VERSION: &str = "1.18.33";

/// Keep OpenCode from connecting to the network: model lists, updates, downloads, plug-ins, sharing, other tools' files.
///
/// `OPENCODE_DISABLE_EMBEDDED_WEB_UI` is absent on purpose: with it, OpenCode forwards unknown paths to a public host.
const QUIET: [&str; 7] = [
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_SHARE",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS",
    "OPENCODE_DISABLE_CLAUDE_CODE",
];

/// Creates the home in `dir`, an absolute path, and returns the complete environment for an OpenCode that uses it.
///
/// `path` becomes its `PATH`: it must contain `rg`, which OpenCode would download otherwise, and the tools that commands need.
/// Data that OpenCode stored in the home before stays.
pub fn demo_home(dir: &Path, model_base_url: &str, path: &OsStr) -> io::Result<BTreeMap<OsString, OsString>> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let config = dir.join("config").join("opencode");
    // OpenCode installs its plug-in package wherever a configuration has none. These two files look as if it had.
    builder.create(config.join("node_modules"))?;
    write(&config.join("package-lock.json"), &installed_plugin())?;
    write(&config.join("opencode.json"), &configuration(model_base_url))?;

    let mut environment = BTreeMap::from([(OsString::from("PATH"), path.to_owned())]);
    for (name, folder) in [
        ("HOME", "home"),
        ("TMPDIR", "tmp"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_STATE_HOME", "state"),
    ] {
        let folder = dir.join(folder);
        builder.create(&folder)?;
        environment.insert(name.into(), folder.into());
    }
    environment.extend(QUIET.map(|name| (name.into(), "1".into())));
    Ok(environment)
}

/// The address of the model for which the home in `dir` was last created.
///
/// An OpenCode that outlived its gateway still calls that address, so that the next demo model should listen there.
pub fn last_model_address(dir: &Path) -> Option<SocketAddr> {
    let text = std::fs::read(dir.join("config").join("opencode").join("opencode.json")).ok()?;
    let configuration: Value = serde_json::from_slice(&text).ok()?;
    let url = configuration.pointer("/provider/demo/options/baseURL")?.as_str()?;
    url.strip_prefix("http://")?.split('/').next()?.parse().ok()
}

fn configuration(model_base_url: &str) -> Value {
    let model = |name: &str, context: u32, output: u32| {
        json!({
            "name": name,
            "tool_call": true,
            "reasoning": true,
            "attachment": true,
            "limit": {"context": context, "output": output},
            "cost": {"input": 1, "output": 2},
        })
    };
    json!({
        // OpenCode rewrites the file to add this if it is missing.
        "$schema": "https://opencode.ai/config.json",
        "model": "demo/demo",
        "small_model": "demo/demo-small",
        "enabled_providers": ["demo"],
        "share": "disabled",
        "autoupdate": false,
        "provider": {
            "demo": {
                // Bundled in OpenCode: nothing is installed for it.
                "npm": "@ai-sdk/openai-compatible",
                "name": "Longshore demo",
                "options": {"baseURL": model_base_url, "apiKey": "none-needed"},
                "models": {
                    "demo": model("Demo model", 200_000, 8_192),
                    "demo-small": model("Demo model, small", 200_000, 8_192),
                    // So small that a few words overflow it, for tests of compaction.
                    "demo-tiny": model("Demo model, tiny context", 30_000, 2_000),
                },
            },
        },
        "permission": {
            "bash": {"*": "allow", "rm *": "ask", "touch *": "ask", "git push*": "deny"},
            "edit": {"*": "allow", "guarded*": "ask"},
            "webfetch": "ask",
            "external_directory": "ask",
        },
    })
}

fn installed_plugin() -> Value {
    json!({
        "name": "config",
        "lockfileVersion": 3,
        "requires": true,
        "packages": {"": {"dependencies": {"@opencode-ai/plugin": OPENCODE_VERSION}}},
    })
}

/// Writes atomically: an OpenCode that starts at this moment never reads half a file.
fn write(path: &Path, value: &Value) -> io::Result<()> {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, format!("{value:#}\n"))?;
    std::fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_home_confines_opencode_to_its_directory_and_the_demo_model() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home of opencode");
        let environment =
            demo_home(&home, "http://127.0.0.1:4999/v1", OsStr::new("/somewhere/bin:/usr/bin")).unwrap();

        assert_eq!(environment[OsStr::new("PATH")], "/somewhere/bin:/usr/bin");
        for name in ["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"]
        {
            let folder = Path::new(&environment[OsStr::new(name)]);
            assert!(folder.starts_with(&home), "{name} leads out of the home");
            assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{name}");
        }
        // OpenCode refuses an empty string for most of these.
        assert!(QUIET.iter().all(|name| environment[OsStr::new(name)] == "1"));
        assert!(!environment.contains_key(OsStr::new("OPENCODE_DISABLE_EMBEDDED_WEB_UI")));

        let config = Path::new(&environment[OsStr::new("XDG_CONFIG_HOME")]).join("opencode");
        assert!(config.join("node_modules").is_dir());
        let lock: Value =
            serde_json::from_slice(&std::fs::read(config.join("package-lock.json")).unwrap()).unwrap();
        assert!(lock["packages"][""]["dependencies"]["@opencode-ai/plugin"].is_string());
        let file: Value =
            serde_json::from_slice(&std::fs::read(config.join("opencode.json")).unwrap()).unwrap();
        assert_eq!(file["provider"]["demo"]["options"]["baseURL"], "http://127.0.0.1:4999/v1");
    }

    #[test]
    fn the_address_of_the_last_model_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(last_model_address(dir.path()), None);
        for port in [4999, 5000] {
            demo_home(dir.path(), &format!("http://127.0.0.1:{port}/v1"), OsStr::new("/bin")).unwrap();
            assert_eq!(last_model_address(dir.path()), Some(SocketAddr::from(([127, 0, 0, 1], port))));
        }
    }

    #[test]
    fn the_server_lists_every_model_of_the_home() {
        let configuration = configuration("http://127.0.0.1:1/v1");
        let models = configuration["provider"]["demo"]["models"].as_object().unwrap();
        assert!(models.keys().all(|id| crate::server::MODELS.contains(&id.as_str())));
        assert_eq!(models.len(), crate::server::MODELS.len());
    }
}
