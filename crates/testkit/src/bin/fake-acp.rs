//! A fake ACP agent, scripted by tests: see `longshore_testkit::fake_acp`.

fn main() -> std::process::ExitCode {
    longshore_testkit::fake_acp::run()
}
