//! `longshore serve` with TLS, as openssl and curl see it.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use longshore_testkit::certificates::{Authority, Identity};
use rustix::process::{Pid, Signal, kill_process};

use super::ATTACHED;
use super::sandbox::{PATIENCE, Running, Sandbox};

const WITH_TLS: [&str; 9] = [
    "serve",
    "--port",
    "0",
    "--opencode-url",
    "http://127.0.0.1:9",
    "--tls-certificate",
    "server.pem",
    "--tls-key",
    "server.key",
];

/// Writes `NAME.pem` and `NAME.key`, which only their owner can read.
fn install(sandbox: &Sandbox, name: &str, identity: &Identity) {
    for (end, text) in [("key", &identity.key), ("pem", &identity.certificate)] {
        // A file is replaced as a whole, as tools for certificates do.
        let file = format!("{name}.{end}");
        let new = format!("{file}.new");
        sandbox.write(&new, text);
        set_mode(sandbox, &new, 0o600);
        std::fs::rename(sandbox.workspace().join(new), sandbox.workspace().join(file)).unwrap();
    }
}

fn set_mode(sandbox: &Sandbox, file: &str, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(sandbox.workspace().join(file), permissions).unwrap();
}

/// A sandbox with a server certificate, and the authority, which is in `ca.pem`.
fn sandbox() -> (Sandbox, Authority) {
    let (sandbox, authority) = (Sandbox::new(), Authority::new("test"));
    install(&sandbox, "server", &authority.server());
    sandbox.write("ca.pem", &authority.certificate);
    (sandbox, authority)
}

fn run(sandbox: &Sandbox, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(sandbox.workspace()).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"))
}

/// The output of `openssl s_client`, and whether the handshake succeeded.
fn handshake(sandbox: &Sandbox, gateway: &Running, arguments: &[&str]) -> (bool, String) {
    let url = gateway.value("url");
    let address = url.strip_prefix("https://").unwrap();
    let mut all = vec![
        "s_client",
        "-connect",
        address,
        "-CAfile",
        "ca.pem",
        "-verify_return_error",
        "-servername",
        "localhost",
    ];
    all.extend(arguments);
    let output = run(sandbox, "openssl", &all);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// The exit code of curl, and what it printed: the status and the version of HTTP.
fn curl(sandbox: &Sandbox, url: &str, arguments: &[&str]) -> (i32, String) {
    let mut all = vec!["-sS", "-o", "body", "-w", "%{http_code} %{http_version}", "--cacert", "ca.pem"];
    all.extend(arguments);
    all.push(url);
    let output = run(sandbox, "curl", &all);
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn openssl_and_curl_see_tls_1_2_and_1_3_with_both_versions_of_http() {
    let (sandbox, _authority) = sandbox();
    let gateway = sandbox.start(&WITH_TLS);
    let accepted: [(&[&str], &[&str]); 4] = [
        (&["-tls1_3", "-alpn", "h2,http/1.1"], &["TLSv1.3", "ALPN protocol: h2"]),
        (&["-tls1_2", "-alpn", "http/1.1"], &["TLSv1.2", "ALPN protocol: http/1.1"]),
        (&["-tls1_2"], &["No ALPN negotiated"]),
        (&[], &["Verify return code: 0 (ok)"]),
    ];
    for (arguments, expected) in accepted {
        let (succeeded, said) = handshake(&sandbox, &gateway, arguments);
        assert!(succeeded && expected.iter().all(|words| said.contains(words)), "{arguments:?}: {said}");
    }
    // The security level 0 lets openssl offer what it considers too weak.
    let refused: [&[&str]; 4] = [
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        &["-tls1", "-cipher", "ALL:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-SHA"],
        &["-tls1_3", "-alpn", "h3"],
    ];
    for arguments in refused {
        let (succeeded, said) = handshake(&sandbox, &gateway, arguments);
        assert!(!succeeded && said.contains("alert"), "{arguments:?}: {said}");
    }

    let url = gateway.value("url");
    let card = format!("{url}/.well-known/agent-card.json");
    assert_eq!(curl(&sandbox, &card, &[]), (0, "200 2".to_owned()));
    assert_eq!(curl(&sandbox, &card, &["--http1.1"]), (0, "200 1.1".to_owned()));
    let body = std::fs::read_to_string(sandbox.workspace().join("body")).unwrap();
    assert!(body.contains(&format!("\"{url}\"")), "the card has the https URL: {body}");
    let tasks = format!("{url}/tasks");
    let credential = format!("Authorization: Bearer {}", gateway.token());
    assert_eq!(curl(&sandbox, &tasks, &[]), (0, "401 2".to_owned()));
    assert_eq!(curl(&sandbox, &tasks, &["-H", &credential]), (0, "200 2".to_owned()));
    // The origin of the gateway itself, and the same site without encryption.
    let own = format!("Origin: {url}");
    assert_eq!(curl(&sandbox, &tasks, &["-H", &credential, "-H", &own]), (0, "200 2".to_owned()));
    let plain = own.replace("https:", "http:");
    assert_eq!(curl(&sandbox, &tasks, &["-H", &credential, "-H", &plain]), (0, "403 2".to_owned()));
    let (code, _) = curl(&sandbox, &card.replace("https:", "http:"), &[]);
    assert_ne!(code, 0, "the port serves no plain HTTP");
    gateway.end(Signal::TERM);
}

#[test]
fn client_certificates_are_principals_and_wrong_ones_are_refused() {
    let (sandbox, _authority) = sandbox();
    let clients = Authority::new("clients");
    sandbox.write("clients.pem", &clients.certificate);
    install(&sandbox, "valid", &clients.client(&["spiffe://test/ci"]));
    install(&sandbox, "expired", &clients.expired_client(&["spiffe://test/ci"]));
    install(&sandbox, "foreign", &Authority::new("clients").client(&["spiffe://test/ci"]));
    sandbox.write(
        "longshore.toml",
        "[serve]\ntls_client_ca = \"clients.pem\"\ntls_client_certificates = \"required\"\n\
         [[auth.credentials]]\nscheme = \"mtls\"\nsan = \"spiffe://test/ci\"\nprincipal = \"ci\"\n",
    );
    set_mode(&sandbox, "longshore.toml", 0o600);
    let gateway = sandbox.start(&[&WITH_TLS[..], &["--config", "longshore.toml"]].concat());
    assert!(gateway.stdout().contains("--cert client.pem --key client.key"), "{}", gateway.stdout());
    let tasks = format!("{}/tasks", gateway.value("url"));
    let with = |name: &str| {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        curl(&sandbox, &tasks, &["--cert", &certificate, "--key", &key])
    };
    assert_eq!(with("valid"), (0, "200 2".to_owned()));
    for name in ["expired", "foreign"] {
        assert_ne!(with(name).0, 0, "{name}");
    }
    assert_ne!(curl(&sandbox, &tasks, &[]).0, 0, "a certificate is required");
    gateway.end(Signal::TERM);
}

/// Waits until a client that trusts this authority is served.
fn until_trusted(sandbox: &Sandbox, url: &str, authority: &Authority) {
    sandbox.write("ca.pem", &authority.certificate);
    let begun = Instant::now();
    while curl(sandbox, &format!("{url}/livez"), &[]).0 != 0 {
        assert!(begun.elapsed() < PATIENCE, "the certificate was not read again");
    }
}

#[test]
fn the_certificate_is_read_again_when_it_changes_and_on_sighup() {
    let (sandbox, old) = sandbox();
    let gateway = sandbox.start(&WITH_TLS);
    let url = gateway.value("url");
    until_trusted(&sandbox, &url, &old);
    let changed = Authority::new("changed");
    install(&sandbox, "server", &changed.server());
    until_trusted(&sandbox, &url, &changed);

    let hangup = || kill_process(Pid::from_raw(gateway.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
    // A broken file changes nothing.
    sandbox.write("server.pem", "broken");
    hangup();
    until_trusted(&sandbox, &url, &changed);
    let again = Authority::new("again");
    install(&sandbox, "server", &again.server());
    hangup();
    until_trusted(&sandbox, &url, &again);

    let stderr = gateway.end(Signal::TERM).stderr;
    assert!(stderr.contains("it holds no certificate in PEM"), "the log says why: {stderr}");
    assert!(stderr.contains("the files for TLS were read again"), "{stderr}");
}

#[test]
fn files_that_cannot_be_used_are_refused_at_the_start() {
    type Change = fn(&Sandbox);

    let cases: [(Change, &str); 5] = [
        (
            |sandbox| set_mode(sandbox, "server.key", 0o644),
            "holds a secret (a private key) and other users can read it",
        ),
        (|sandbox| set_mode(sandbox, "server.pem", 0o666), "serve.tls_certificate"),
        (|sandbox| std::fs::remove_file(sandbox.workspace().join("server.key")).unwrap(), "serve.tls_key"),
        (|sandbox| sandbox.write("server.key", "no key"), "it holds no private key in PEM"),
        (
            |sandbox| {
                install(sandbox, "other", &Authority::new("other").server());
                let [from, to] = ["other.key", "server.key"].map(|file| sandbox.workspace().join(file));
                std::fs::rename(from, to).unwrap();
            },
            "the private key does not belong to the certificate",
        ),
    ];
    for (change, expected) in cases {
        let (sandbox, _authority) = sandbox();
        change(&sandbox);
        let run = sandbox.run(&WITH_TLS);
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
    }
}

#[test]
fn plain_http_off_loopback_is_a_warning_or_refused() {
    let open = [&ATTACHED[..], &["--host", "0.0.0.0"]].concat();
    let sandbox = Sandbox::new();
    let run = sandbox.start(&open).end(Signal::TERM);
    assert!(run.stderr.contains("without TLS, so others on the network can read"), "{}", run.stderr);
    let proxied = [&open[..], &["--public-url", "https://agent.example.com"]].concat();
    let run = sandbox.start(&proxied).end(Signal::TERM);
    assert!(!run.stderr.contains("without TLS"), "{}", run.stderr);
    let run = sandbox.run(&[&open[..], &["--require-tls"]].concat());
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("serve.require_tls is set"), "{}", run.stderr);
    sandbox.start(&[&ATTACHED[..], &["--require-tls"]].concat()).end(Signal::TERM);
}

/// The certificate of docs/operating.md, that of an authority for another name, and a file that holds a chain.
#[test]
fn the_commands_and_the_doctor_call_a_gateway_with_tls_whatever_its_certificate() {
    let (by_authority, authority) = sandbox();
    let self_signed = Sandbox::new();
    let made = run(
        &self_signed,
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=agent.example",
            "-keyout",
            "server.key",
            "-out",
            "server.pem",
        ],
    );
    assert!(made.status.success(), "{made:?}");
    set_mode(&self_signed, "server.key", 0o600);
    for (what, sandbox) in [("of an authority", &by_authority), ("self-signed", &self_signed)] {
        let gateway = sandbox.start(&WITH_TLS);
        let listed = sandbox.run(&["tasks", "list"]);
        assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), "There are no tasks.\n"), "{what}");
        let doctor = sandbox.run(&["doctor", "--opencode-url", "http://127.0.0.1:9"]);
        let runs = format!("runs at {}", gateway.value("url"));
        assert!(doctor.stdout.contains(&runs), "{what}: {}", doctor.stdout);
        assert!(!doctor.stdout.contains("another program"), "{what}: {}", doctor.stdout);

        // Another certificate than that of the gateway is refused, and the doctor does not take this for a gateway that is gone.
        std::fs::write(sandbox.workspace().join("server.pem"), authority.server().certificate).unwrap();
        std::fs::write(sandbox.workspace().join("server.key"), "not the key of it").unwrap();
        let refused = sandbox.run(&["tasks", "list"]);
        assert_eq!(refused.code, Some(7), "{what}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("another certificate than that in the file"),
            "{what}: {}",
            refused.stderr
        );
        let doctor = sandbox.run(&["doctor", "--opencode-url", "http://127.0.0.1:9"]);
        assert!(
            doctor.stdout.contains("another certificate than that in the file"),
            "{what}: {}",
            doctor.stdout
        );
        gateway.end(Signal::TERM);
    }
}

#[test]
fn a_gateway_that_requires_client_certificates_is_named_as_the_reason() {
    let (sandbox, _authority) = sandbox();
    sandbox.write("clients.pem", &Authority::new("clients").certificate);
    let flags = ["--tls-client-ca", "clients.pem", "--tls-client-certificates", "required"];
    let gateway = sandbox.start(&[&WITH_TLS[..], &flags].concat());
    let refused = sandbox.run(&["tasks", "list"]);
    assert_eq!(refused.code, Some(7), "{}", refused.stderr);
    assert!(refused.stderr.contains("requires a client certificate"), "{}", refused.stderr);
    gateway.end(Signal::TERM);
}
