//! Completions and manual pages.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use clap::CommandFactory as _;
use longshore::cli::Cli;

use crate::cli::sandbox::Sandbox;

/// The words of every command, such as `tasks list`. The command without words is not among them.
fn commands(command: &clap::Command, above: &[String], found: &mut Vec<Vec<String>>) {
    for inner in command.get_subcommands() {
        let words = [above, &[inner.get_name().to_owned()]].concat();
        commands(inner, &words, found);
        found.push(words);
    }
}

fn all_commands() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    commands(&Cli::command(), &[], &mut found);
    assert!(found.len() > 15 && found.contains(&vec!["tasks".to_owned(), "list".to_owned()]), "{found:?}");
    found
}

#[test]
fn every_shell_completes_every_command() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = sandbox.run(&["completions", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{shell}");
        for words in all_commands() {
            let last = words.last().unwrap();
            assert!(run.stdout.contains(last.as_str()), "the completions of {shell} lack {words:?}");
        }
        // The choices of a setting, and the values of a flag. For the other shells clap completes no values.
        for value in ["critical", "jsonl"].iter().filter(|_| ["bash", "fish", "zsh"].contains(&shell)) {
            assert!(run.stdout.contains(value), "the completions of {shell} lack {value}");
        }
    }
    let unknown = sandbox.run(&["completions", "csh"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("[possible values: bash, elvish, fish, powershell, zsh]"));
}

/// The bash that reads them is the judge.
#[test]
fn bash_offers_commands_and_values() {
    let sandbox = Sandbox::new();
    // Too long for an argument.
    let script = sandbox.workspace().join("completions.bash");
    std::fs::write(&script, sandbox.run(&["completions", "bash"]).stdout).unwrap();
    for (line, expected) in [
        ("longshore ta", "tasks"),
        ("longshore tasks w", "watch"),
        ("longshore call --appr", "--approve"),
        ("longshore serve --log-level crit", "critical"),
    ] {
        let words = line.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let last = line.split(' ').count() - 1;
        let before = line.rsplit(' ').nth(1).unwrap();
        let ask = format!(
            "source '{}'\nCOMP_WORDS=({words}); COMP_CWORD={last}; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}\n\
             _longshore longshore \"${{COMP_WORDS[$COMP_CWORD]}}\" '{before}' && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &ask]).stdin(Stdio::null()).output().unwrap();
        let offered = String::from_utf8(output.stdout).unwrap();
        assert!(offered.lines().any(|word| word == expected), "{line:?}: {offered:?}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&["man", "--out", "made/man1"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""));
    let directory = sandbox.workspace().join("made/man1");
    let written: BTreeSet<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let names = all_commands().into_iter().map(|words| format!("longshore-{}.1", words.join("-")));
    let expected: BTreeSet<String> = names.chain(["longshore.1".to_owned()]).collect();
    assert_eq!(written, expected);
    let page = std::fs::read_to_string(directory.join("longshore-call.1")).unwrap();
    assert!(page.contains("Exit codes:") && page.contains("\\-\\-approve"), "{page}");

    let printed = sandbox.run(&["man"]);
    assert_eq!(printed.stdout, std::fs::read_to_string(directory.join("longshore.1")).unwrap());
    let failed = sandbox.run(&["man", "--out", "/dev/null/man1"]);
    assert_eq!(failed.code, Some(1));
    assert!(
        failed.stderr.starts_with("error: cannot make the directory /dev/null/man1: "),
        "{}",
        failed.stderr
    );
}
