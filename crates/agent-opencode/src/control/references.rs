//! Files that a text names as `@path`.
//!
//! In the arguments of a command and in what a sub-agent is to do, OpenCode reads them wherever they are on the machine, and asks
//! nobody. So they must be where the files of a message may be. What it makes of a text is read here as it reads it.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use longshore_model::{Error, Order, OrderPart, Result};

use crate::api::template::Template;

/// How many files one text may name. More are refused.
const MAX_REFERENCES: usize = 100;

/// Where a request has the arguments of a command.
const ARGUMENTS: &str = "request.arguments";

/// Refuses arguments of a command that would be run, or may be.
pub(super) fn check_unrun(template: Template, arguments: &str) -> Result<()> {
    if !template.runs_arguments || arguments.trim().is_empty() {
        return Ok(());
    }
    let text = "OpenCode may run what is given to this command in a shell, which needs the capability session_shell where the \
        shell is switched on; call it without arguments.";
    Err(Error::invalid(ARGUMENTS, text))
}

/// Where files may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    pub(crate) root: &'a str,
    /// Of the session.
    pub(crate) directory: &'a str,
}

impl Bounds<'_> {
    /// Refuses an order that names a file elsewhere. What a link leads to can change while the order waits, so this is looked at
    /// again when its turn begins.
    pub(crate) async fn check_order(self, order: &Order, template: Template) -> Result<()> {
        match order {
            Order::Command { arguments, .. } => self.check_arguments(template, arguments).await,
            Order::Prompt { parts, .. } => {
                for (place, part) in parts.iter().enumerate() {
                    if let OrderPart::Subtask(subtask) = part {
                        self.check(&subtask.prompt, &format!("request.parts[{place}].prompt")).await?;
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
            if !self.has(name).await {
                // Whether there is such a file is not told.
                return Err(Error::invalid(
                    field,
                    "OpenCode reads what @ names; it must be in the workspace, and its path without ~ and ..",
                ));
            }
        }
        Ok(())
    }

    async fn has(self, name: &str) -> bool {
        let path = Path::new(name);
        let (root, directory) = (Path::new(self.root), Path::new(self.directory));
        let is_below = |path: &Path| path.starts_with(root) || path.starts_with(directory);
        if name.starts_with('~') || path.components().any(|part| part == Component::ParentDir) {
            return false;
        }
        if path.is_absolute() && !is_below(path) {
            return false;
        }
        // OpenCode begins at the top of the repository, which can be any directory above, also that of the whole machine.
        let mut places: Vec<PathBuf> = directory.ancestors().map(|above| above.join(path)).collect();
        places.dedup();
        for place in places {
            if let Ok(found) = tokio::fs::canonicalize(&place).await
                && !is_below(&found)
            {
                return false;
            }
        }
        true
    }
}

/// What stands behind each `@` that begins a word, as far as OpenCode reads it.
fn references(text: &str) -> BTreeSet<&str> {
    let begins = text.match_indices('@').filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        !before.is_some_and(|before| before.is_ascii_alphanumeric() || matches!(before, '_' | '`'))
    });
    begins.map(|(at, _)| reference(&text[at + 1..])).filter(|name| !name.is_empty()).collect()
}

/// It ends at a blank, a backtick or a comma, and at a dot that nothing follows, but for the first.
fn reference(rest: &str) -> &str {
    let end = rest.find(|end: char| is_blank(end) || matches!(end, '`' | ','));
    let word = &rest[..end.unwrap_or(rest.len())];
    let first = usize::from(word.starts_with('.'));
    let dots = word.bytes().enumerate().skip(first).filter(|(_, byte)| *byte == b'.');
    let end = dots.map(|(at, _)| at).find(|at| matches!(word.as_bytes().get(at + 1), None | Some(b'.')));
    &word[..end.unwrap_or(word.len())]
}

/// As JavaScript has it.
fn is_blank(letter: char) -> bool {
    letter == '\u{feff}' || (letter.is_whitespace() && letter != '\u{85}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_what_opencode_takes_for_one() {
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
        let place = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(place.path()).unwrap();
        let (root, work) = (top.join("root"), top.join("root/work"));
        std::fs::create_dir_all(&work).unwrap();
        for file in ["outside.txt", "root/inside.txt", "root/work/own.txt"] {
            std::fs::write(top.join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(top.join("outside.txt"), work.join("link")).unwrap();
        let (root, work) = (root.to_str().unwrap(), work.to_str().unwrap());
        let bounds = Bounds { root, directory: work };
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
    async fn arguments_are_neither_run_nor_read_from_elsewhere() {
        let place = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(place.path()).unwrap();
        let root = root.to_str().unwrap();
        let bounds = Bounds { root, directory: root };
        let plain = Template { runs_arguments: false, reads_arguments: false };
        let runs = Template { runs_arguments: true, ..plain };
        let reads = Template { reads_arguments: true, ..plain };
        for template in [plain, reads] {
            check_unrun(template, "main").expect("it is not run");
        }
        // Of what is not known, everything is to be expected.
        for template in [runs, Template::default()] {
            check_unrun(template, " ").expect("nothing to run");
            let error = check_unrun(template, "main").expect_err("it would be run");
            assert_eq!(error.violations()[0].field, ARGUMENTS);
        }
        for template in [reads, Template::default()] {
            bounds.check_arguments(template, "'a b' docs").await.expect("in the workspace");
            for arguments in ["/etc/passwd", "x \"/etc/passwd\"", "../x", "~/x", "@/etc/passwd"] {
                bounds.check_arguments(template, arguments).await.expect_err(arguments);
            }
        }
        bounds.check_arguments(plain, "/etc/passwd").await.expect("only words");
    }
}
