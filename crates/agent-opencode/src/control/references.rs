//! Files that a text names as `@path`.
//!
//! In the arguments of a command and in the prompt of a subtask, OpenCode reads such files anywhere on the machine without
//! asking for permission. So the gateway accepts only names of files that a message could also attach. The parser here follows
//! OpenCode's.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use longshore_engine::ProtectedPaths;
use longshore_model::{Error, NativePrompt, NativePromptPart, Result};

use crate::api::template::Template;
use crate::disk;

/// How many files one text may name. More are refused.
const MAX_REFERENCES: usize = 100;

/// The field with the arguments of a command.
const ARGUMENTS: &str = "request.arguments";

/// Refuses arguments of a command that OpenCode would run, or may run, in a shell.
pub(super) fn check_not_run(template: Template, arguments: &str) -> Result<()> {
    if !template.runs_arguments || arguments.trim().is_empty() {
        return Ok(());
    }
    let text = "OpenCode may run the arguments of this command in a shell. That needs the capability session_shell, on a \
        gateway where the shell is enabled; call the command without arguments.";
    Err(Error::invalid(ARGUMENTS, text))
}

/// The directories in which files may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    pub(crate) root: &'a str,
    /// The directory of the session.
    pub(crate) directory: &'a str,
    /// Files in these directories that may not be named.
    pub(crate) protected: &'a Arc<ProtectedPaths>,
}

impl Bounds<'_> {
    /// Refuses a native prompt that names a file elsewhere. A link can change while the prompt waits, so the check is repeated
    /// when the turn begins.
    pub(crate) async fn check_native_prompt(self, native: &NativePrompt, template: Template) -> Result<()> {
        match native {
            NativePrompt::Command { arguments, .. } => self.check_arguments(template, arguments).await,
            NativePrompt::Prompt { parts, .. } => {
                for (position, part) in parts.iter().enumerate() {
                    if let NativePromptPart::Subtask(subtask) = part {
                        self.check(&subtask.prompt, &format!("request.parts[{position}].prompt")).await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn check_arguments(self, template: Template, arguments: &str) -> Result<()> {
        let mut named = references(arguments);
        if template.reads_arguments {
            let words = arguments.split(|end: char| is_blank(end) || matches!(end, '"' | '\''));
            named.extend(words.filter(|word| !word.is_empty()));
        }
        self.check_all(named, ARGUMENTS).await
    }

    /// Refuses a text that names a file elsewhere.
    async fn check(self, text: &str, field: &str) -> Result<()> {
        self.check_all(references(text), field).await
    }

    async fn check_all(self, named: BTreeSet<&str>, field: &str) -> Result<()> {
        if named.len() > MAX_REFERENCES {
            let text = format!("must not name more than {MAX_REFERENCES} files with @");
            return Err(Error::invalid(field, text));
        }
        for name in named {
            if !self.allows(name).await {
                // The text does not reveal whether the file exists.
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
        // OpenCode starts at the top of the repository, which can be any directory above, even the root of the file system.
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

/// The text after each `@` that begins a word, as far as OpenCode reads it.
fn references(text: &str) -> BTreeSet<&str> {
    let begins = text.match_indices('@').filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        !before.is_some_and(|before| before.is_ascii_alphanumeric() || matches!(before, '_' | '`'))
    });
    begins.map(|(at, _)| reference(&text[at + 1..])).filter(|name| !name.is_empty()).collect()
}

/// A reference ends at a blank, a backtick, a comma, or a dot that is followed by nothing or another dot, except a leading dot.
fn reference(rest: &str) -> &str {
    let end = rest.find(|end: char| is_blank(end) || matches!(end, '`' | ','));
    let word = &rest[..end.unwrap_or(rest.len())];
    let first = usize::from(word.starts_with('.'));
    let dots = word.bytes().enumerate().skip(first).filter(|(_, byte)| *byte == b'.');
    let end = dots.map(|(at, _)| at).find(|at| matches!(word.as_bytes().get(at + 1), None | Some(b'.')));
    &word[..end.unwrap_or(word.len())]
}

/// JavaScript's definition of white space.
fn is_blank(letter: char) -> bool {
    letter == '\u{feff}' || (letter.is_whitespace() && letter != '\u{85}')
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
        let bounds = Bounds { root, directory: work, protected: &Arc::default() };
        let inside = format!("@{root}/inside.txt");
        for text in ["@inside.txt and @own.txt", "@nothing/here", "@plan", inside.as_str()] {
            bounds.check(text, "f").await.expect(text);
        }
        let beside = format!("@{root}-not");
        for text in ["@outside.txt", "@link", "@~/x", "@/etc/nothing", "@../inside.txt", &beside] {
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
        let bounds = Bounds { root: top, directory: work, protected: &protected };
        let reads = Template { runs_arguments: false, reads_arguments: true };
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
            bounds.check_arguments(reads, &format!("x '{spelling}'")).await.expect_err(spelling);
        }
        for open in ["own.toml", "src", "longshore.toml.md", "gone", "data/token"] {
            bounds.check(&format!("@{open}"), "f").await.expect(open);
        }
    }

    #[tokio::test]
    async fn arguments_are_neither_run_nor_read_from_outside_the_workspace() {
        let temp = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(temp.path()).unwrap();
        let root = root.to_str().unwrap();
        let bounds = Bounds { root, directory: root, protected: &Arc::default() };
        let plain = Template { runs_arguments: false, reads_arguments: false };
        let runs = Template { runs_arguments: true, ..plain };
        let reads = Template { reads_arguments: true, ..plain };
        for template in [plain, reads] {
            check_not_run(template, "main").expect("the arguments are not run");
        }
        // An unknown template may do anything.
        for template in [runs, Template::default()] {
            check_not_run(template, " ").expect("nothing to run");
            let error = check_not_run(template, "main").expect_err("the arguments would be run");
            assert_eq!(error.violations()[0].field, ARGUMENTS);
        }
        for template in [reads, Template::default()] {
            bounds.check_arguments(template, "'a b' docs").await.expect("in the workspace");
            for arguments in ["/etc/passwd", "x \"/etc/passwd\"", "../x", "~/x", "@/etc/passwd"] {
                bounds.check_arguments(template, arguments).await.expect_err(arguments);
            }
        }
        bounds.check_arguments(plain, "/etc/passwd").await.expect("arguments that are only text");
    }
}
