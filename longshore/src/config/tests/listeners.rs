//! The settings of TLS, of client certificates, of the unix socket and of WebSockets.

use longshore_edge::{Capability, CertificateMatch, Rights};

use super::super::listen::{ClientCertificates, Listen, TlsPlan, UnixPlan};
use super::*;

fn listen_on(file: &str) -> Listen {
    Sources { file, ..Sources::default() }.plan().listen
}

#[test]
fn the_files_for_tls_are_read() {
    let file = "[serve]\ntls_certificate = \"a.pem\"\ntls_key = \"/keys/a.key\"\n";
    let plan = Sources { file, ..Sources::default() }.plan();
    let tls = plan.listen.tls.unwrap();
    assert!(tls.certificate.is_absolute() && tls.certificate.ends_with("a.pem"), "{tls:?}");
    assert_eq!((tls.key.to_str(), tls.clients), (Some("/keys/a.key"), None));
    let given: &[(&str, &str)] = &[
        ("LONGSHORE_TLS_CERTIFICATE", "/a.pem"),
        ("LONGSHORE_TLS_KEY", "/a.key"),
        ("LONGSHORE_TLS_CLIENT_CA", "/ca.pem"),
        ("LONGSHORE_TLS_CLIENT_CERTIFICATES", "required"),
    ];
    let plan = Sources { variables: given, ..Sources::default() }.plan();
    assert!(plan.protected_paths().deny(Path::new("/a.key")), "no caller may read the key");
    let clients = ClientCertificates { authorities: "/ca.pem".into(), are_required: true };
    let expected = TlsPlan { certificate: "/a.pem".into(), key: "/a.key".into(), clients: Some(clients) };
    assert_eq!(plan.listen.tls, Some(expected));
}

#[test]
fn the_unix_socket_is_read() {
    let listen = listen_on("[serve]\nport = \"off\"\nunix_socket = \"/run/s\"\n");
    assert_eq!(listen.port, None);
    assert_eq!(listen.unix, Some(UnixPlan { path: "/run/s".into(), mode: 0o600, principal: None }));
    for mode in ["660", "\"660\""] {
        let file = format!(
            "[serve]\nunix_socket = \"/run/s\"\nunix_socket_mode = {mode}\nunix_socket_principal = \"ada\"\n"
        );
        let expected = UnixPlan { path: "/run/s".into(), mode: 0o660, principal: Some("ada".to_owned()) };
        assert_eq!(listen_on(&file).unix, Some(expected));
    }
}

#[test]
fn the_path_of_mcp_is_read() {
    assert_eq!(listen_on("").mcp.as_deref(), Some("/mcp"));
    assert_eq!(listen_on("[serve]\nmcp_path = \"/tools\"\n").mcp.as_deref(), Some("/tools"));
    assert_eq!(listen_on("[serve]\nmcp_path = \"off\"\n").mcp, None);
    // A configuration from before MCP existed.
    let listen = listen_on("[serve]\nwebsocket_path = \"/mcp\"\n");
    assert_eq!((listen.websocket.as_deref(), listen.mcp), (Some("/mcp"), None));
}

#[test]
fn the_path_of_websockets_is_read() {
    assert_eq!(listen_on("").websocket.as_deref(), Some("/ws"));
    assert_eq!(listen_on("[serve]\nwebsocket_path = \"/live\"\n").websocket.as_deref(), Some("/live"));
    assert_eq!(listen_on("[serve]\nwebsocket_path = \"off\"\n").websocket, None);
    for path in ["/tasks", "ws", "/ws/"] {
        let problems = variables(&[("LONGSHORE_WEBSOCKET_PATH", path)]);
        assert!(problems.join("").contains("must be off or a path such as /ws"), "{path}: {problems:?}");
    }
}

#[test]
fn settings_that_need_each_other_are_refused_alone() {
    let alone = |setting: &str, other: &str| format!("{setting}: has no effect without {other}; set both");
    let cases = [
        (("LONGSHORE_TLS_CERTIFICATE", "a"), "serve.tls_certificate", "serve.tls_key"),
        (("LONGSHORE_TLS_KEY", "a"), "serve.tls_key", "serve.tls_certificate"),
        (("LONGSHORE_TLS_CLIENT_CA", "a"), "serve.tls_client_ca", "serve.tls_certificate"),
        (
            ("LONGSHORE_TLS_CLIENT_CERTIFICATES", "optional"),
            "serve.tls_client_certificates",
            "serve.tls_client_ca",
        ),
        (("LONGSHORE_UNIX_SOCKET_MODE", "600"), "serve.unix_socket_mode", "serve.unix_socket"),
        (("LONGSHORE_UNIX_SOCKET_PRINCIPAL", "ada"), "serve.unix_socket_principal", "serve.unix_socket"),
    ];
    for ((variable, value), setting, other) in cases {
        let expected = alone(&format!("{variable} ({setting})"), other);
        assert_eq!(variables(&[(variable, value)]), [expected]);
    }
    let grpc = [("PORT", "port", "1"), ("REFLECTION", "reflection", "false")];
    for (variable, setting, value) in grpc {
        let variable = format!("LONGSHORE_GRPC_{variable}");
        let expected = alone(&format!("{variable} (grpc.{setting})"), "grpc.enabled");
        assert_eq!(variables(&[("LONGSHORE_GRPC", "false"), (&variable, value)]), [expected]);
    }
    assert_eq!(
        variables(&[("A2A_PORT", "off")]),
        ["A2A_PORT (serve.port): without a port the gateway needs a unix socket; set serve.unix_socket"]
    );
    for mode in ["060", "1777", "rw", "9"] {
        let problems = variables(&[("LONGSHORE_UNIX_SOCKET", "s"), ("LONGSHORE_UNIX_SOCKET_MODE", mode)]);
        assert!(problems[0].contains("it takes permissions in octal"), "{mode}: {problems:?}");
    }
}

#[test]
fn a_certificate_is_a_credential() {
    let hex = "AB:".repeat(32);
    let listed = format!(
        r#"[{{"scheme": "mtls", "fingerprint": "{hex}", "principal": "ada"}},
            {{"scheme": "mtls", "san": "Ci.Example.com", "principal": "ci"}}]"#
    );
    let tls = [
        ("LONGSHORE_TLS_CERTIFICATE", "/a.pem"),
        ("LONGSHORE_TLS_KEY", "/a.key"),
        ("LONGSHORE_TLS_CLIENT_CA", "/ca.pem"),
    ];
    let given = [&tls[..], &[("A2A_STATIC_AUTH_CREDENTIALS", listed.as_str())]].concat();
    let plan = Sources { variables: &given, ..Sources::default() }.plan();
    let logins: Vec<_> = plan.credentials.into_iter().flatten().map(|credential| credential.login).collect();
    let [
        Login::Certificate { certificate: one, principal: ada },
        Login::Certificate { certificate: other, principal: ci },
    ] = &logins[..]
    else {
        panic!("{logins:?}")
    };
    assert_eq!((one, ada.as_str()), (&CertificateMatch::Fingerprint("ab".repeat(32)), "ada"));
    assert_eq!((other, ci.as_str()), (&CertificateMatch::Name("ci.example.com".to_owned()), "ci"));

    let cases = [
        (r#"{"scheme": "mtls", "principal": "p"}"#, "fingerprint): is required, or san"),
        (
            r#"{"scheme": "mtls", "fingerprint": "ab", "principal": "p"}"#,
            "fingerprint): must be the SHA-256 of a certificate: 64 hexadecimal digits",
        ),
        (r#"{"scheme": "mtls", "san": "a b", "principal": "p"}"#, "san): must be a DNS name or a URI"),
        (
            r#"{"scheme": "mtls", "san": "a", "token": "t", "principal": "p"}"#,
            "token): must not be given for mtls",
        ),
        (r#"{"scheme": "mtls", "san": "a"}"#, "principal): is required"),
        (
            r#"{"scheme": "bearer", "san": "a", "token": "t", "principal": "p"}"#,
            "san): must not be given for bearer",
        ),
    ];
    for (entry, expected) in cases {
        let list = format!("[{entry}]");
        let given = [&tls[..], &[("A2A_STATIC_AUTH_CREDENTIALS", list.as_str())]].concat();
        let expected = format!("A2A_STATIC_AUTH_CREDENTIALS (auth.credentials[0].{expected}");
        assert_eq!(variables(&given), [expected], "{entry}");
    }
    let problems = variables(&[("A2A_STATIC_AUTH_CREDENTIALS", listed.as_str())]);
    assert!(problems[0].ends_with("set serve.tls_client_ca"), "{problems:?}");
}

#[test]
fn a_user_of_this_machine_is_a_credential_on_the_unix_socket() {
    let socket = ("LONGSHORE_UNIX_SOCKET", "/run/s");
    let listed = r#"[{"scheme": "unix_user", "uid": 1001, "principal": "ci"},
        {"scheme": "unix_user", "uid": 1002, "principal": "ada", "capabilities": ["session_share"]},
        {"scheme": "unix_user", "uid": 1003, "principal": "old", "enabled": false}]"#;
    let given = [socket, ("A2A_STATIC_AUTH_CREDENTIALS", listed)];
    let plan = Sources { variables: &given, ..Sources::default() }.plan();
    let users: Vec<_> = plan.local_users.iter().map(|user| (user.uid, user.principal.as_str())).collect();
    assert_eq!(users, [(1001, "ci"), (1002, "ada")]);
    assert_eq!(plan.local_users[0].rights, Rights::default());
    assert!(plan.local_users[1].rights.capabilities.contains(Capability::SessionShare));
    assert!(plan.credentials.is_none(), "callers on the port need a token, so one is generated");

    let cases = [
        (r#"{"scheme": "unix_user", "principal": "p"}"#, "[0].uid): is required"),
        (r#"{"scheme": "unix_user", "uid": 7}"#, "[0].principal): is required"),
        (
            r#"{"scheme": "unix_user", "uid": -1, "principal": "p"}"#,
            "[0].uid): must be the number of a user, as `id -u` prints it",
        ),
        (
            r#"{"scheme": "unix_user", "uid": 7, "token": "t", "principal": "p"}"#,
            "[0].token): must not be given for unix_user",
        ),
        (
            r#"{"scheme": "bearer", "uid": 7, "token": "t", "principal": "p"}"#,
            "[0].uid): must not be given for bearer",
        ),
        (
            r#"{"scheme": "unix_user", "uid": 7, "principal": "p"}, {"scheme": "unix_user", "uid": 7, "principal": "q"}"#,
            "): two entries name the same user with different principals or rights; keep one of them",
        ),
    ];
    for (entries, expected) in cases {
        let list = format!("[{entries}]");
        let expected = format!("A2A_STATIC_AUTH_CREDENTIALS (auth.credentials{expected}");
        assert_eq!(variables(&[socket, ("A2A_STATIC_AUTH_CREDENTIALS", &list)]), [expected], "{entries}");
    }
    let problems = variables(&[("A2A_STATIC_AUTH_CREDENTIALS", listed)]);
    assert!(problems[0].ends_with("set serve.unix_socket"), "{problems:?}");
}
