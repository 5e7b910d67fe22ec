//! Variables of other gateways and of OpenCode that Longshore accepts too.

use super::*;
use crate::config::credentials::Login;

fn logins(variables: &[(&str, &str)]) -> Vec<String> {
    let credentials = Sources { variables, ..Sources::default() }.plan().credentials.unwrap_or_default();
    let shown = |login| match login {
        Login::Bearer { token, principal } => format!("bearer {} {principal}", token.expose_secret()),
        Login::Basic { username, .. } => format!("basic {username}"),
        Login::ApiKey { key, principal } => format!("key {} {principal}", key.expose_secret()),
        Login::Certificate { principal, .. } => format!("certificate {principal}"),
    };
    credentials.into_iter().map(|credential| shown(credential.login)).collect()
}

#[test]
fn the_credentials_of_iac_code_are_accepted() {
    let (token, key) = (("IACCODE_A2A_HTTP_TOKEN", "t"), ("IACCODE_A2A_API_KEY", "k"));
    assert_eq!(logins(&[token]), ["bearer t default"]);
    assert_eq!(logins(&[key]), ["key k default"]);
    assert_eq!(logins(&[token, key]), ["bearer t default", "key k default"]);
    assert_eq!(logins(&[token, ("A2A_BEARER_TOKEN", "own")]), ["bearer own default"]);
    assert_eq!(logins(&[("iaccode_a2a_http_token", "t"), ("A2A_BEARER_TOKEN", " ")]), ["bearer t default"]);
}

#[test]
fn the_password_of_opencodes_own_server_is_used_when_attached() {
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, Option<&'a str>);

    let url = ("OPENCODE_BASE_URL", "http://127.0.0.1:4096");
    let (name, password) = (("OPENCODE_SERVER_USERNAME", "ada"), ("OPENCODE_SERVER_PASSWORD", "theirs"));
    let cases: [Case<'_>; 3] = [
        (&[url], "opencode", None),
        (&[url, name, password], "ada", Some("theirs")),
        (&[url, password, ("OPENCODE_AUTH_PASSWORD", "ours")], "opencode", Some("ours")),
    ];
    for (variables, expected_name, expected_password) in cases {
        let plan = Sources { variables, ..Sources::default() }.plan();
        let AgentPlan::Attached { username, password, .. } = plan.agent else { panic!("not attached") };
        let found = password.as_ref().map(ExposeSecret::expose_secret);
        assert_eq!((username.as_str(), found), (expected_name, expected_password));
    }
    // A managed OpenCode gets its own password. The variable may be set for another server, so it causes no warning.
    let managed = Sources { variables: &[name, password], ..Sources::default() }.load().unwrap();
    assert_eq!(managed.warnings, Vec::<String>::new());
}

#[test]
fn several_roots_can_be_opened_to_callers() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let roots = ["one", "two, with a comma"].map(|name| base.join(name));
    for root in &roots {
        std::fs::create_dir(root).unwrap();
    }
    let text = roots.each_ref().map(|root| root.to_str().unwrap());
    let colons = text.join(":");
    let array = serde_json::to_string(&text).unwrap();
    for value in [&colons, &array] {
        let variables = &[("IACCODE_A2A_ALLOWED_CWDS", value.as_str())];
        assert_eq!(Sources { variables, ..Sources::default() }.plan().allowed_roots, roots, "{value}");
    }
    let file = format!("[opencode]\nallowed_roots = {array}\n");
    assert_eq!(Sources { file: &file, ..Sources::default() }.plan().allowed_roots, roots);
    assert_eq!(Sources::default().plan().allowed_roots, Vec::<std::path::PathBuf>::new());
    assert_eq!(
        variables(&[("IACCODE_A2A_ALLOWED_CWDS", &format!("{}:/no/such/root", text[0]))]),
        [
            "IACCODE_A2A_ALLOWED_CWDS (opencode.allowed_roots): there is no such directory (/no/such/root); correct the path, \
             or create the directory"
        ]
    );
}

#[test]
fn unknown_names_of_every_family_cause_a_warning() {
    let given = &[
        ("IACCODE_A2A_HTTP_TOKN", "1"),
        ("IACCODE_A2A_BASIC_USERNAME", "1"),
        ("OPENCODE_TIMEOT", "1"),
        ("OPENCODE_CONFIG", "1"),
        ("OPENCODE_EXPERIMENTAL_ANYTHING", "1"),
        ("OPENCODE_SERVER_PASSWORD", "1"),
        ("IAC_CODE_HOME", "1"),
    ];
    let warnings = Sources { variables: given, ..Sources::default() }.load().unwrap().warnings;
    assert_eq!(
        warnings,
        [
            "IACCODE_A2A_BASIC_USERNAME is not supported by this version and has no effect",
            "IACCODE_A2A_HTTP_TOKN is not known and has no effect; did you mean IACCODE_A2A_HTTP_TOKEN?",
            "OPENCODE_TIMEOT is not known and has no effect; did you mean OPENCODE_TIMEOUT?",
        ]
    );
}
