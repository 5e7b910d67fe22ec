//! Checks the files that a text names as `@path`.
//!
//! In the arguments of a command and in the prompt of a subtask, OpenCode reads such files anywhere on the machine without asking
//! for permission. So the gateway accepts only names of files that a message could also attach. The parser in this module finds
//! exactly the names that OpenCode finds.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use longshore_engine::ProtectedPaths;
use longshore_model::{Error, NativePromptPart, Result};

use crate::api::template::{self, Expanded, Template, is_blank};
use crate::disk;

/// How many files one text may name. A text with more is refused.
const MAX_REFERENCES: usize = 100;

/// The field with the arguments of a command.
const ARGUMENTS: &str = "request.arguments";

/// The field with the files of a command.
const FILES: &str = "request.parts";

/// A command with its arguments before and after the gateway's changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentCommand<'a> {
    pub(crate) template: &'a Template,
    /// The arguments that the caller wrote.
    pub(crate) written: &'a str,
    /// The arguments that OpenCode gets. They may contain descriptions of files that the model does not accept.
    pub(crate) sent: &'a str,
    /// Whether the caller may run a shell.
    pub(crate) may_run: bool,
}

/// The directories in which a text may name files, and the exceptions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    pub(crate) root: &'a str,
    /// The directory of the session.
    pub(crate) directory: &'a str,
    /// The gateway's own files, which a text must not name.
    pub(crate) protected: &'a Arc<ProtectedPaths>,
    /// The agents that callers may not name. OpenCode treats a name as an agent if there is no such file.
    pub(crate) barred_agents: &'a [String],
}

impl Bounds<'_> {
    /// Refuses a command whose arguments name a file outside the bounds, or would run in a shell. The check is repeated when the
    /// turn begins, because the template, the model and links may change while the command waits.
    pub(crate) async fn check_command(self, command: SentCommand<'_>) -> Result<()> {
        self.check_arguments(command, command.written, ARGUMENTS).await?;
        if command.sent == command.written {
            return Ok(());
        }
        self.check_arguments(command, command.sent, FILES).await
    }

    /// Refuses a prompt with a subtask that names a file outside the bounds. The check is repeated when the turn begins, because
    /// links may change while the prompt waits.
    pub(crate) async fn check_subtasks(self, parts: &[NativePromptPart]) -> Result<()> {
        for (position, part) in parts.iter().enumerate() {
            if let NativePromptPart::Subtask(subtask) = part {
                self.check(&subtask.prompt, &format!("request.parts[{position}].prompt")).await?;
            }
        }
        Ok(())
    }

    async fn check_arguments(self, command: SentCommand<'_>, arguments: &str, field: &str) -> Result<()> {
        if arguments.is_empty() {
            return Ok(());
        }
        let SentCommand { template, may_run, .. } = command;
        // The template itself may run commands and name files. The check ensures that the arguments add none.
        let (text, own) = match (template.expand(arguments), template.expand("")) {
            (Expanded::Text(text), Expanded::Text(own)) => (text, own),
            (Expanded::TooLong, _) | (_, Expanded::TooLong) => {
                return Err(Error::invalid(
                    field,
                    "The text that OpenCode makes of the command is too long.",
                ));
            }
            (Expanded::Unknown, _) | (_, Expanded::Unknown) => {
                if !may_run {
                    return Err(would_run(field));
                }
                // The template is unknown, so each word of the arguments may become part of a file name.
                let words = arguments.split(|end: char| is_blank(end) || matches!(end, '"' | '\''));
                let named = references(arguments).into_iter().chain(words.filter(|word| !word.is_empty()));
                return self.check_all(&named.collect(), field).await;
            }
        };
        let runs = template.runs_arguments() || template::commands(&text) != template::commands(&own);
        if runs && !may_run {
            return Err(would_run(field));
        }
        let named = &references(&text) - &references(&own);
        self.check_all(&named, field).await
    }

    /// Refuses a text that names a file outside the bounds.
    async fn check(self, text: &str, field: &str) -> Result<()> {
        self.check_all(&references(text), field).await
    }

    async fn check_all(self, named: &BTreeSet<&str>, field: &str) -> Result<()> {
        if named.len() > MAX_REFERENCES {
            let text = format!("must not name more than {MAX_REFERENCES} files with @");
            return Err(Error::invalid(field, text));
        }
        for name in named {
            if self.barred_agents.iter().any(|agent| agent == name) {
                return Err(Error::invalid(field, format!("This gateway does not allow the agent {name}.")));
            }
            if !self.allows(name).await {
                // The error text does not reveal whether the file exists.
                return Err(Error::invalid(
                    field,
                    "OpenCode reads files named with @; they must be in the workspace, and their paths without ~ and ..",
                ));
            }
        }
        Ok(())
    }

    async fn allows(self, name: &str) -> bool {
        let path = Path::new(name);
        let (root, directory) = (Path::new(self.root), Path::new(self.directory));
        let is_below = |path: &Path| path.starts_with(root) || path.starts_with(directory);
        if name.starts_with('~') || path.components().any(|part| part == Component::ParentDir) {
            return false;
        }
        if path.is_absolute() && !is_below(path) {
            return false;
        }
        // OpenCode looks for the file at the top of the repository, which can be any directory above the session's directory, even
        // the root of the file system.
        let mut candidates: Vec<PathBuf> = directory.ancestors().map(|above| above.join(path)).collect();
        candidates.dedup();
        for candidate in &candidates {
            if let Ok(found) = tokio::fs::canonicalize(candidate).await
                && !is_below(&found)
            {
                return false;
            }
        }
        !disk::is_protected(self.protected, candidates).await
    }
}

/// The error for arguments that OpenCode would run, or may run, in a shell.
fn would_run(field: &str) -> Error {
    let instead = if field == FILES {
        "The model does not take this file, so OpenCode would get its description among the arguments; call the command without it."
    } else {
        "Call the command without arguments."
    };
    let text = format!(
        "OpenCode may run the arguments of this command in a shell. That needs the capability session_shell, on a gateway where \
         the shell is enabled. {instead}"
    );
    Error::invalid(field, text)
}

/// The text after each `@` at the start of a word, as far as OpenCode takes it for a file name.
fn references(text: &str) -> BTreeSet<&str> {
    let begins = text.match_indices('@').filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        !before.is_some_and(|before| before.is_ascii_alphanumeric() || matches!(before, '_' | '`'))
    });
    begins.map(|(at, _)| reference(&text[at + 1..])).filter(|name| !name.is_empty()).collect()
}

/// The end of a reference: a blank, a backtick, a comma, or a dot before the end or another dot. A leading dot does not end it.
fn reference(rest: &str) -> &str {
    let end = rest.find(|end: char| is_blank(end) || matches!(end, '`' | ','));
    let word = &rest[..end.unwrap_or(rest.len())];
    let first = usize::from(word.starts_with('.'));
    let dots = word.bytes().enumerate().skip(first).filter(|(_, byte)| *byte == b'.');
    let end = dots.map(|(at, _)| at).find(|at| matches!(word.as_bytes().get(at + 1), None | Some(b'.')));
    &word[..end.unwrap_or(word.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_parsed_as_opencode_parses_it() {
        for (text, expected) in [
            ("look at @src/main.rs, and @./a.b.", vec!["./a.b", "src/main.rs"]),
            ("mail me@example.org or `@x`", vec![]),
            ("@../up @etc/passwd..x @~/.ssh/id", vec!["../up", "etc/passwd", "~/.ssh/id"]),
            ("@ @@/a\u{feff}b (@c)", vec!["/a", "@/a", "c)"]),
            ("é@x", vec!["x"]),
        ] {
            assert_eq!(references(text).into_iter().collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn only_files_below_the_workspace_may_be_named() {
        let temp = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(temp.path()).unwrap();
        let (root, work) = (top.join("root"), top.join("root/work"));
        std::fs::create_dir_all(&work).unwrap();
        for file in ["outside.txt", "root/inside.txt", "root/work/own.txt"] {
            std::fs::write(top.join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(top.join("outside.txt"), work.join("link")).unwrap();
        let (root, work) = (root.to_str().unwrap(), work.to_str().unwrap());
        let barred_agents = &["plan".to_owned()];
        let bounds = Bounds { root, directory: work, protected: &Arc::default(), barred_agents };
        let inside = format!("@{root}/inside.txt");
        for text in ["@inside.txt and @own.txt", "@nothing/here", "@build plan", inside.as_str()] {
            bounds.check(text, "f").await.expect(text);
        }
        let beside = format!("@{root}-not");
        for text in ["@outside.txt", "@plan.", "@link", "@~/x", "@/etc/nothing", "@../inside.txt", &beside] {
            let error = bounds.check(text, "f").await.expect_err(text);
            assert_eq!(error.violations()[0].field, "f");
        }
        let many: Vec<String> = (0..=MAX_REFERENCES).map(|at| format!("@f{at}")).collect();
        bounds.check(&many.join(" "), "f").await.expect_err("too many");
    }

    #[tokio::test]
    async fn no_spelling_of_a_reference_reaches_a_secret_of_the_gateway() {
        let temp = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(temp.path()).unwrap();
        let work = root.join("src/work");
        std::fs::create_dir_all(&work).unwrap();
        std::fs::create_dir_all(root.join(".data/home")).unwrap();
        for file in ["longshore.toml", ".data/token", ".data/home/auth.json", "own.toml"] {
            std::fs::write(root.join(file), "x").unwrap();
        }
        for (name, target) in [("link", ".data"), ("link.toml", "longshore.toml"), ("src/up", "..")] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        for (name, target) in [("hard", ".data/token"), ("src/work/hard.toml", "longshore.toml")] {
            std::fs::hard_link(root.join(target), root.join(name)).unwrap();
        }
        let protected =
            Arc::new(ProtectedPaths::new([".data", "longshore.toml"].map(|name| root.join(name))));
        let (top, work) = (root.to_str().unwrap(), work.to_str().unwrap());
        let bounds = Bounds { root: top, directory: work, protected: &protected, barred_agents: &[] };
        let template = "Read @$2".into();
        let bases = ["", "./", "src/up/", "src/up/src/up/", "/", "//", "/./", "/src/up/"];
        let secrets = [
            "longshore.toml",
            ".data/token",
            ".data//token",
            ".data/./token",
            ".data/home/auth.json",
            ".data",
            ".data/",
            ".data/gone",
            "link",
            "link/token",
            "link/home/auth.json",
            "link.toml",
            "hard",
            "src/work/hard.toml",
        ];
        let mut spellings = Vec::new();
        for base in bases {
            let base = if base.starts_with('/') { format!("{top}{base}") } else { base.to_owned() };
            spellings.extend(secrets.map(|secret| format!("{base}{secret}")));
        }
        spellings.extend(
            ["hard.toml", "./hard.toml", "~/longshore.toml", "../../longshore.toml"].map(str::to_owned),
        );
        spellings.push(format!("/proc/self/root{top}/longshore.toml"));
        for spelling in &spellings {
            bounds.check(&format!("look at @{spelling} please"), "f").await.expect_err(spelling);
            let arguments = format!("x '{spelling}'");
            let command =
                SentCommand { template: &template, written: &arguments, sent: &arguments, may_run: true };
            bounds.check_command(command).await.expect_err(spelling);
        }
        for open in ["own.toml", "src", "longshore.toml.md", "gone", "data/token"] {
            bounds.check(&format!("@{open}"), "f").await.expect(open);
        }
    }

    #[tokio::test]
    async fn arguments_read_no_file_outside_the_workspace() {
        let temp = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(temp.path()).unwrap();
        let root = root.to_str().unwrap();
        let bounds = Bounds { root, directory: root, protected: &Arc::default(), barred_agents: &[] };
        let check = async |template: &Template, arguments: &str| {
            let command = SentCommand { template, written: arguments, sent: arguments, may_run: true };
            bounds.check_command(command).await
        };
        let outside = ["/etc/passwd", "x \"/etc/passwd\"", "../x", "~/x", "@/etc/passwd"];
        for (template, inside, outside) in [
            // No directory above the workspace, such as /tmp, contains files with these names.
            (Template::default(), &["'no-such-1 no-such-2' no-such-3", ""][..], &outside[..]),
            (
                "Read @$1".into(),
                &["no-such-1", "no-such-1 /etc/passwd", "\"\" /etc/passwd"],
                &["/etc/passwd", "../x", "~/x"],
            ),
            // OpenCode's reference ends before the two dots.
            ("Read @no-such-1/$1".into(), &["x", "../../etc/passwd"], &[]),
            ("Read @/etc/$1".into(), &[""], &["passwd"]),
            (
                "Review $ARGUMENTS".into(),
                &["/etc/passwd", "x@/etc/passwd", "@no-such-1"],
                &["@/etc/passwd", "x (@~/x)"],
            ),
            // Template and arguments form the reference together.
            ("Review $1/$2".into(), &["me you"], &["@ etc/passwd"]),
            ("me$ARGUMENTS".into(), &["@/etc/passwd"], &["/@/etc/passwd"]),
            ("See @/etc/motd $ARGUMENTS".into(), &["x", "$`"], &["$`@/etc/passwd"]),
        ] {
            for arguments in inside {
                check(&template, arguments)
                    .await
                    .unwrap_or_else(|error| panic!("{template:?} {arguments}: {error:?}"));
            }
            for arguments in outside {
                let refused = check(&template, arguments).await;
                let refused = refused.expect_err(&format!("{template:?} {arguments}"));
                assert_eq!(refused.violations()[0].field, ARGUMENTS, "{template:?} {arguments}");
            }
        }
        let many = "$ARGUMENTS".repeat(2000);
        check(&"$1".into(), &many).await.expect_err("the text is too long");
    }
}
