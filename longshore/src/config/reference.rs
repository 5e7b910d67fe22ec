//! `docs/configuration.md`, made from the table of settings.

use std::fmt::Write as _;

use super::setting::{Fallback, Group, Kind, Setting};
use super::table;
use super::unsupported::NOT_SUPPORTED;

const HEAD: &str = "\
<!-- Made by `make docs` from longshore/src/config/table.rs. A test fails when it is stale. -->

# Configuration

A setting can come from four places. The first that has it wins:

1. a flag of `longshore serve`,
2. an environment variable,
3. `longshore.toml`, in the current directory or where `--config` says,
4. the default.

A flag or a key of the file that does not exist, and a value that is not allowed, stop the start with a message that
names the place, the key and what is allowed (exit code 2). All problems are shown at once.

Variables have the names of `opencode-a2a` where it has one, in any case. An empty variable counts as not set (but for
`OPENCODE_TIMEOUT_STREAM`, where it means: no limit). An `A2A_*` or `LONGSHORE_*` variable that is not known, or that
this version does not support, is named in a warning. Other `OPENCODE_*` variables belong to OpenCode and are left alone.
Relative paths start from the current directory. `.env` files are not read.

Secrets have no flag, since other users of the machine can see a command line. The
environment of a managed OpenCode does not have the gateway's own credentials (`A2A_*`, `OPENCODE_AUTH_*`,
`OTEL_EXPORTER_OTLP_HEADERS`), but its tools can read the `OPENCODE_SERVER_PASSWORD` that Longshore made for it: whoever
may prompt the agent may use that OpenCode.
";

const CREDENTIALS: &str = "\
Each credential has a `scheme` and, by scheme, the fields that say what the caller sends and who it is. A principal
owns its tasks and contexts; two credentials with one principal share them, which is how a secret is replaced.

| scheme | fields | the caller sends |
|---|---|---|
| `bearer` | `token`, `principal` | `Authorization: Bearer <token>` |
| `basic` | `username`, `password` (the principal is the username) | `Authorization: Basic <base64 of username:password>` |
| `api_key` | `key`, `principal` | `X-API-Key: <key>` |

`enabled = false` switches one off. `credential_id` tells the credentials of one principal apart.

`capabilities` is a list of what only some may do: `session_shell`, `workspace_mutation`, `session_claim` (go on in a
session of OpenCode that belongs to nobody yet), `operator` (opens nothing so far; it is there for lists that name it). Without
the list, or with an empty one, a basic credential has `session_shell` and `workspace_mutation`, the others have none; the
tokens of the next paragraphs have all.

`thinking_exposure` says for one credential what its callers see of the agent's thinking, whatever the gateway's own
setting is: a list of `raw_thinking` and `tool_trace`, or `none`, or `all`.

```toml
[[auth.credentials]]
scheme = \"bearer\"
token = \"a long random text\"
principal = \"ci\"
```

```sh
export A2A_STATIC_AUTH_CREDENTIALS='[{\"scheme\":\"bearer\",\"token\":\"a long random text\",\"principal\":\"ci\"}]'
```

With no credential at all, a token is made on the first start, kept in `token` in the data directory (readable by its
owner only) and shown; `longshore token` shows it again. Its principal is `default`, as for `A2A_BEARER_TOKEN`.
";

/// The whole page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        let _ = write!(page, "\n## {}\n", group.heading());
        if group == Group::Auth {
            let _ = write!(page, "\n{CREDENTIALS}");
        }
        for setting in table::ALL.iter().filter(|setting| setting.group == group) {
            section(&mut page, setting);
        }
    }
    page.push_str(
        "\n## Not supported\n\nThese variables of `opencode-a2a` have no effect in this version:\n",
    );
    let names: Vec<String> = NOT_SUPPORTED.iter().map(|name| format!("`{name}`")).collect();
    let _ = writeln!(page, "{}.", names.join(", "));
    page
}

fn section(page: &mut String, setting: &Setting) {
    let _ = write!(page, "\n### `{}`\n\n{}\n\n", setting.key, setting.help);
    let flag = setting.flag.map_or_else(
        || "none".to_owned(),
        |flag| match setting.kind {
            Kind::Switch => format!("`--{flag}`"),
            kind => format!("`--{flag} {}`", kind.placeholder()),
        },
    );
    let env = setting.env.map_or_else(|| "none".to_owned(), |env| format!("`{env}`"));
    let fallback = match setting.fallback {
        Fallback::Value(value) => format!("`{value}`"),
        Fallback::Computed(words) => words.to_owned(),
        Fallback::Nothing => "not set".to_owned(),
    };
    let _ = write!(
        page,
        "- Takes: {}\n- Flag: {flag}\n- Variable: {env}\n- Default: {fallback}\n",
        setting.kind.allowed()
    );
}
