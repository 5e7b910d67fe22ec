//! `longshore agents`, with a small agent that is a shell script.

use super::Sandbox;

/// Answers the handshake, opens a session with modes, and answers each prompt with one text.
const AGENT: &str = r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\).*/\1/p')
  result() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case $line in
  *'"method":"initialize"'*)
    result '{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"Tiny","version":"1.2.3"}}' ;;
  *'"method":"session/new"'*)
    result '{"sessionId":"s1","modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"}]}}' ;;
  *'"method":"session/prompt"'*)
    printf '%s\n' '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hello."}}}}'
    result '{"stopReason":"end_turn"}'
    # Some agents tell their commands late.
    sleep 0.2
    printf '%s\n' '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"init"}]}}}' ;;
  esac
done
"#;

/// The output without times.
fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rfind(" (") {
        Some(at) if line.ends_with(" s)") => line[..at].to_owned(),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_check_of_an_agent_shows_what_works() {
    let sandbox = Sandbox::new();
    sandbox.write("tiny.sh", AGENT);
    let run = sandbox.run(&["agents", "check", "sh tiny.sh"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    insta::assert_snapshot!(without_times(&run.stdout), @r#"
    Checking sh (`sh tiny.sh`) ...
      handshake   ok
      version     Tiny 1.2.3 (ACP)
      sessions    load
      prompts     text
      logins      none
      session     ok
      modes       ask
      models      none
      options     none
      trial turn  ok; the agent said "Hello."
      commands    init

    The agent works.
    "#);
    assert!(!sandbox.data().exists(), "a check makes no data directory");
}

#[test]
fn the_check_of_the_configured_agent_uses_its_configuration() {
    let sandbox = Sandbox::new();
    sandbox.write("tiny.sh", AGENT);
    let file = "[[agents]]\nname = \"tiny\"\nkind = \"acp\"\ncommand = [\"sh\", \"tiny.sh\"]\nmode = \"no-such-mode\"\n";
    sandbox.write("longshore.toml", file);
    let run = sandbox.run(&["agents", "check", "tiny", "--config", "longshore.toml"]);
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("Checking tiny (`sh tiny.sh`)"), "{}", run.stdout);
    assert!(
        run.stdout.contains("trial turn  failed") && run.stdout.contains("no-such-mode"),
        "{}",
        run.stdout
    );
}

#[test]
fn an_agent_that_does_not_start_fails_its_check() {
    let run = Sandbox::new().run(&["agents", "check", "true"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stdout.contains("handshake   failed"), "{}", run.stdout);
    assert!(run.stdout.ends_with("The agent does not work.\n"), "{}", run.stdout);
    let run = Sandbox::new().run(&["agents", "check", "no-such-program"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("is neither a preset"), "{}", run.stderr);
}

#[test]
fn the_presets_are_listed_with_what_is_found() {
    let run = Sandbox::new().run(&["agents"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for (preset, command, tested) in [("vibe ", "vibe-acp ", " yes "), ("goose ", "goose acp ", " no ")] {
        let row = run.stdout.lines().find(|line| line.starts_with(preset)).expect("a preset");
        assert!(row.contains(command) && row.contains(tested), "{row}");
    }
}
