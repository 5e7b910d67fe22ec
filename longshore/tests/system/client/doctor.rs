//! `longshore doctor` finds each planted fault, and says what to do.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use longshore_testkit::certificates::Authority;
use longshore_testkit::fake_opencode::{FakeOpenCode, Fault, Setup as FakeSetup};
use longshore_testkit::gateway::{Gateway, Setup};
use longshore_testkit::stub_agent::{Reply, StubAgent};
use tempfile::TempDir;

use super::fixture::{LONGSHORE, Run, command, finish};

/// A directory with nothing wrong: a fake OpenCode, and no gateway yet.
struct Place {
    home: TempDir,
    fake: FakeOpenCode,
}

impl Place {
    fn new() -> Self {
        Self::with(FakeSetup::default())
    }

    fn with(setup: FakeSetup) -> Self {
        Self { home: tempfile::tempdir().unwrap(), fake: FakeOpenCode::start_with(setup) }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    fn data(&self) -> std::path::PathBuf {
        self.path().join("data")
    }

    fn doctor(&self) -> Command {
        self.doctor_at("0")
    }

    /// For a gateway with this port.
    fn doctor_at(&self, port: &str) -> Command {
        let workspace = self.path().join("workspace");
        std::fs::create_dir_all(&workspace).unwrap();
        let mut command = command(self.path(), &["doctor", "--port", port, "--data-dir"]);
        command.arg(self.data()).arg("--workspace").arg(workspace).env("OPENCODE_BASE_URL", self.fake.url());
        command
    }

    /// With this variable.
    fn doctor_with(&self, name: &str, value: &str) -> Command {
        let mut command = self.doctor();
        command.env(name, value);
        command
    }

    /// With a program instead of the fake.
    fn doctor_of_program(&self, script: &str) -> Command {
        let program = self.path().join("opencode");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = self.doctor();
        command.env_remove("OPENCODE_BASE_URL").arg("--opencode").arg(program);
        command
    }
}

/// The finding starts with its verdict and what was checked, and the next line says what to do.
fn check(run: &Run, code: i32, finding: &str, text: &str, advice: &str) {
    assert_eq!(run.code, Some(code), "{finding}: {run:?}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = lines.iter().position(|line| words(line).starts_with(finding) && line.contains(text));
    let at = at.unwrap_or_else(|| panic!("no {finding:?} with {text:?}: {run:#?}"));
    assert!(lines[at + 1].contains(advice), "{finding}: {advice:?} is not in {:?}", lines[at + 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_wrong_with_a_place_that_works() {
    let place = Place::new();
    let run = finish(place.doctor()).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.ends_with("\nNothing is wrong.\n"), "{}", run.stdout);
    assert!(!place.data().exists(), "a question makes no directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_planted_fault_of_the_place_and_the_agent_is_found() {
    let place = Place::new();

    let run = finish(place.doctor_with("A2A_LOG_LEVEL", "loud")).await;
    check(&run, 2, "problem configuration", "\"loud\" is not allowed", "Correct this setting");

    let run = finish(place.doctor_with("A2A_PROT", "1")).await;
    check(&run, 0, "warning configuration", "did you mean A2A_PORT?", "Remove or correct");

    let run = finish(place.doctor_with("LONGSHORE_MIN_FREE_DISK", "9000000000000000000")).await;
    check(&run, 1, "problem disk", "bytes are free", "Free some space");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let run = finish(place.doctor_at(&port)).await;
    check(&run, 1, "problem port", "another program uses this port", "--port");

    std::fs::write(place.data(), "a file").unwrap();
    let run = finish(place.doctor()).await;
    check(&run, 1, "problem data", "is not a directory", "--data-dir");
    std::fs::remove_file(place.data()).unwrap();

    std::fs::create_dir(place.data()).unwrap();
    std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = finish(place.doctor()).await;
    check(&run, 0, "warning data", "is open to other users (mode 755)", "chmod 700");
    std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(0o700)).unwrap();

    std::fs::write(place.data().join("store"), "longshore.db\n").unwrap();
    let run = finish(place.doctor()).await;
    check(&run, 1, "problem store", "is missing, and a gateway has kept tasks in it before", "from a backup");
    std::fs::remove_dir_all(place.data()).unwrap();

    let doctor = place.doctor();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 512 && exec \"$0\" \"$@\"", LONGSHORE]).args(doctor.get_args());
    limited.env_clear().current_dir(place.path());
    limited.envs(doctor.get_envs().filter_map(|(name, value)| Some((name, value?))));
    check(&finish(limited).await, 0, "warning limits", "may open 512 files only", "ulimit -n");

    let mut missing = place.doctor();
    missing.env_remove("OPENCODE_BASE_URL").args(["--opencode", "no-such-opencode"]);
    check(
        &finish(missing).await,
        1,
        "problem OpenCode",
        "no program no-such-opencode",
        "npm install -g opencode-ai@",
    );

    let run = finish(place.doctor_of_program("#!/bin/sh\necho 0.1.2\n")).await;
    check(&run, 0, "warning OpenCode", "OpenCode 0.1.2 may work", "install the tested version");

    let run = finish(place.doctor_of_program("#!/bin/sh\nexit 1\n")).await;
    check(&run, 1, "problem OpenCode", "does not print its version", "install OpenCode again");

    let run = finish(place.doctor_with("OPENCODE_BASE_URL", "http://127.0.0.1:9")).await;
    check(&run, 1, "problem OpenCode", "http://127.0.0.1:9 does not work", "Start it");

    let locked =
        FakeSetup { password: Some(("opencode".to_owned(), "right".to_owned())), ..FakeSetup::default() };
    let run = finish(Place::with(locked).doctor_with("OPENCODE_AUTH_PASSWORD", "wrong")).await;
    check(
        &run,
        1,
        "problem OpenCode",
        "refused the gateway's user name or password",
        "OPENCODE_AUTH_PASSWORD",
    );

    place.fake.fault_once("GET", "/event", Fault::Html);
    let run = finish(place.doctor()).await;
    check(&run, 1, "problem event stream", "event stream", "must not buffer");

    place.fake.fault_once("GET", "/config/providers", Fault::Body(r#"{"providers": [], "default": {}}"#));
    let run = finish(place.doctor()).await;
    check(&run, 1, "problem models", "the credentials of no provider", "opencode auth login");

    let run = finish(place.doctor_with("LONGSHORE_MODEL", "nobody/model")).await;
    check(&run, 1, "problem models", "the configured model is of the provider nobody", "opencode auth login");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_used_or_has_ended_is_found() {
    let place = Place::new();
    let authority = Authority::new("tests");
    let (good, other) = (authority.server(), authority.server());
    let ended = authority.expired_client(&["localhost"]);
    for (certificate, key, code, finding, text, advice) in [
        (None, &good.key, 1, "problem TLS", "serve.tls_certificate", "Correct serve.tls_certificate"),
        (
            Some(&good.certificate),
            &other.key,
            1,
            "problem TLS",
            "TLS cannot be used",
            "Correct serve.tls_certificate",
        ),
        (Some(&ended.certificate), &ended.key, 1, "problem TLS", "ended on 2000-01-01", "Renew it"),
        (Some(&good.certificate), &good.key, 0, "ok TLS", "can be used until", ""),
    ] {
        let [certificate_file, key_file] = ["certificate.pem", "key.pem"].map(|name| place.path().join(name));
        let _ = std::fs::remove_file(&certificate_file);
        if let Some(certificate) = certificate {
            std::fs::write(&certificate_file, certificate).unwrap();
        }
        std::fs::write(&key_file, key).unwrap();
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut doctor = place.doctor();
        doctor.env("LONGSHORE_TLS_CERTIFICATE", &certificate_file).env("LONGSHORE_TLS_KEY", &key_file);
        check(&finish(doctor).await, code, finding, text, advice);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_around_a_running_gateway_are_found() {
    let fake = FakeOpenCode::start();
    let setup = Setup::attached(LONGSHORE, &fake.url());
    let gateway = Gateway::start(setup).await;
    let home = tempfile::tempdir().unwrap();
    let doctor = |variables: &[(&str, &str)]| {
        let mut command = command(home.path(), &["doctor", "--data-dir"]);
        command.arg(gateway.data_dir()).arg("--workspace").arg(gateway.workspace());
        command
            .env("OPENCODE_BASE_URL", fake.url())
            .env("A2A_BEARER_TOKEN", longshore_testkit::gateway::TOKEN);
        command.envs(variables.iter().copied());
        command
    };
    let run = finish(doctor(&[("A2A_PUBLIC_URL", gateway.url())])).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains(&format!("runs at {}", gateway.url())), "{}", run.stdout);

    let run = finish(doctor(&[("A2A_BEARER_TOKEN", "another-token")])).await;
    check(&run, 1, "problem gateway", "refuses the configured credential", "Restart it");

    let run = finish(doctor(&[("A2A_PUBLIC_URL", "http://127.0.0.1:9")])).await;
    check(&run, 1, "problem public URL", "Cannot connect to 127.0.0.1:9", "proxy");

    let page = StubAgent::start(|_, _| Reply::new(200, "text/html", "<h1>Welcome"));
    let run = finish(doctor(&[("A2A_PUBLIC_URL", &page.url())])).await;
    check(&run, 1, "problem public URL", "a web page", "proxy");

    let elsewhere = "https://agent.example.com";
    let other = StubAgent::start(move |_, _| {
        Reply::json(&StubAgent::card(elsewhere)).header("date", "Thu, 01 Jan 2026 00:00:00 GMT")
    });
    let run = finish(doctor(&[("A2A_PUBLIC_URL", &other.url())])).await;
    check(&run, 1, "problem public URL", "that of another agent, Stub", "proxy");
    check(&run, 1, "warning clock", "differ by", "NTP");
}
