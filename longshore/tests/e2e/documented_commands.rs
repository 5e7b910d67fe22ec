//! Every command of `README.md` and of the pages in `docs/` runs as it is written there, in the order of its page, against one
//! gateway with the demo model.
//!
//! A fenced `sh` block is run; a `text` block after it is the output that it must print (`...` stands for any text). A block that
//! cannot run has a comment before it: `<!-- not run by the tests: the reason -->`.
//!
//! The commands find the gateway on the documented port through curl's own configuration file. `longshore serve` is stopped when it
//! has printed its first request.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_testkit::gateway::{Gateway, Setup, path_with_tools};

use crate::harness::LONGSHORE;

const NOT_RUN: &str = "<!-- not run by the tests: ";

/// More blocks that cannot run than this mean that the pages promise more than is tested.
const MOST_NOT_RUN: usize = 5;

#[derive(Debug)]
struct Block {
    /// The page and the line of its fence.
    place: String,
    commands: String,
    output: Option<String>,
    /// The reason not to run it.
    not_run: Option<String>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The README first, then the pages by name.
fn pages() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages.sort();
    pages.insert(0, repository().join("README.md"));
    pages
}

fn blocks(page: &Path) -> Vec<Block> {
    let name = page.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    // The line before a fence, and whether only blank lines follow the last block.
    let (mut before, mut follows_block) = ("", false);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            follows_block &= line.trim().is_empty();
            before = line;
            continue;
        };
        let inside: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let inside = inside.join("\n");
        match language {
            "sh" => {
                let reason = before.strip_prefix(NOT_RUN).and_then(|rest| rest.strip_suffix(" -->"));
                let place = format!("{name}:{}", number + 1);
                blocks.push(Block {
                    place,
                    commands: inside,
                    output: None,
                    not_run: reason.map(str::to_owned),
                });
                follows_block = true;
            }
            "text" if follows_block => {
                blocks.last_mut().unwrap().output = Some(inside);
                follows_block = false;
            }
            _ => follows_block = false,
        }
        before = "";
    }
    blocks
}

/// A program `longshore` that stops `serve` when it is ready, and otherwise is the program under test.
fn install(bin: &Path) {
    let script = format!(
        r#"#!/bin/sh
[ "$1" = serve ] || exec '{LONGSHORE}' "$@"
export A2A_PORT=0 LONGSHORE_DATA_DIR="$HOME/served-$$"
banner="$HOME/served-$$.txt"
: > "$banner"
[ -z "$OPENCODE_BASE_URL" ] || unset LONGSHORE_DEMO
[ "$2" != --agent ] || unset LONGSHORE_DEMO
'{LONGSHORE}' "$@" > "$banner" &
served=$!
until grep -q -e '^curl ' -e '^Waiting for OpenCode' "$banner"; do
  kill -0 $served || {{ cat "$banner"; exit 1; }}
  sleep 0.1
done
kill -INT $served
wait $served
"#
    );
    std::fs::create_dir_all(bin).unwrap();
    let program = bin.join("longshore");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
}

/// One shell runs all blocks of a page, so that variables stay. The output of each block goes to a file of its own.
fn script(blocks: &[Block], out: &Path) -> String {
    let mut script = "set -e\n".to_owned();
    for (index, block) in blocks.iter().enumerate().filter(|(_, block)| block.not_run.is_none()) {
        let file = out.join(index.to_string());
        let Block { place, commands, .. } = block;
        let _ = write!(script, "echo '{place}' >&2\n{{\n{commands}\n}} > '{}'\n", file.display());
    }
    script
}

/// Whether the text is the expected one, in which `...` stands for any text.
fn matches(expected: &str, found: &str) -> bool {
    let mut rest = found;
    let mut pieces = expected.split("...");
    let Some(after) = pieces.next().and_then(|first| rest.strip_prefix(first)) else { return false };
    rest = after;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty() || expected.ends_with("...")
}

#[test]
fn every_documented_command_runs_or_says_why_not() {
    let all: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).collect();
    let not_run: Vec<_> =
        all.iter().filter_map(|block| Some((&block.place, block.not_run.as_ref()?))).collect();
    for (place, reason) in &not_run {
        assert!(reason.split_whitespace().count() >= 4, "{place}: the reason says too little: {reason:?}");
    }
    assert!(not_run.len() <= MOST_NOT_RUN, "{not_run:#?}");
    assert!(all.len() >= 20, "only {} blocks were found", all.len());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let markers = text.matches(NOT_RUN).count();
        let used = blocks(&page).iter().filter(|block| block.not_run.is_some()).count();
        assert_eq!(markers, used, "{}: a marker must stand directly before its block", page.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_commands_work_as_written() {
    // An empty token counts as not set: the gateway generates one, as for a new user.
    let gateway = Gateway::start(Setup::demo(LONGSHORE).env("A2A_BEARER_TOKEN", "")).await;
    let port = gateway.url().rsplit(':').next().unwrap().to_owned();
    let around = tempfile::tempdir().unwrap();
    let (home, bin) = (around.path().join("home"), around.path().join("bin"));
    install(&bin);
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(gateway.workspace().join("your-project")).unwrap();
    std::fs::write(home.join(".curlrc"), format!("connect-to = \"127.0.0.1:8000:127.0.0.1:{port}\"\n"))
        .unwrap();
    let path =
        std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path_with_tools()))).unwrap();
    for page in pages() {
        let blocks = blocks(&page);
        let out = around.path().join(page.file_stem().unwrap());
        std::fs::create_dir(&out).unwrap();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script(&blocks, &out)).current_dir(gateway.workspace()).env_clear();
        shell.env("PATH", &path).env("HOME", &home);
        shell.env("LONGSHORE_DATA_DIR", gateway.data_dir()).env("LONGSHORE_DEMO", "true");
        let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let printed: Vec<String> = (0..blocks.len())
            .map(|index| std::fs::read_to_string(out.join(index.to_string())).unwrap_or_default())
            .collect();
        assert!(output.status.success(), "{}: {said}\n{printed:#?}", page.display());
        for (block, printed) in blocks.iter().zip(&printed) {
            assert!(!printed.contains("\"error\":"), "{} was refused: {printed}", block.place);
            if let Some(expected) = &block.output {
                assert!(
                    matches(expected, printed.trim_end()),
                    "{}: {expected}\nis not\n{printed}",
                    block.place
                );
            }
        }
        if page.ends_with("README.md") {
            // The resumed stream is the rest of the first one, and nothing else.
            let streams: Vec<&String> = printed.iter().filter(|text| text.starts_with("id: ")).collect();
            let [whole, rest] = streams[..] else { panic!("expected two streams: {printed:#?}") };
            assert!(rest.len() < whole.len() && whole.ends_with(rest.as_str()), "{whole}\nthen\n{rest}");
        }
    }
}
