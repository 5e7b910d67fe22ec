//! Reads git's files to find the worktrees of a repository and their branches. These files alone do not prove that a directory
//! is a worktree, because anybody can write them. OpenCode must list the worktree too.

use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt as _;

/// How many bytes of one of git's files are read. All files that are read here have one line.
const MAX_BYTES: u64 = 4096;

/// The worktree that contains the directory, if the worktree claims to belong to the repository that contains the root. Both
/// paths must be resolved.
pub(super) async fn worktree_of(root: &Path, directory: &Path) -> Option<PathBuf> {
    let claimed = checkout(directory).await?;
    let own = checkout(root).await?;
    let shared = own.shared_git_directory().await?;
    (!claimed.is_main && claimed.git_directory.starts_with(shared)).then_some(claimed.top)
}

/// The branch that is checked out in exactly this directory.
pub(super) async fn branch(directory: &Path) -> Option<String> {
    let checkout = checkout(directory).await.filter(|checkout| checkout.top == directory)?;
    let head = line(&checkout.git_directory.join("HEAD")).await?;
    let branch = head.strip_prefix("ref:")?.trim().strip_prefix("refs/heads/")?;
    (!branch.is_empty() && !branch.contains(char::is_control)).then(|| branch.to_owned())
}

/// Whether git has finished writing the files of a commit into exactly this directory. Git holds `index.lock` while it writes, and
/// leaves an `index`.
pub(super) async fn is_checked_out(directory: &Path) -> bool {
    let Some(checkout) = checkout(directory).await.filter(|checkout| checkout.top == directory) else {
        return false;
    };
    let has = |name: &str| tokio::fs::try_exists(checkout.git_directory.join(name));
    let has_all = has("HEAD").await.unwrap_or(false) && has("index").await.unwrap_or(false);
    has_all && !has("index.lock").await.unwrap_or(true)
}

/// A checkout of a repository.
struct Checkout {
    top: PathBuf,
    git_directory: PathBuf,
    /// Whether the checkout contains the repository itself.
    is_main: bool,
}

impl Checkout {
    /// The git directory that all checkouts of the repository share.
    async fn shared_git_directory(&self) -> Option<PathBuf> {
        match line(&self.git_directory.join("commondir")).await {
            Some(shared) if !self.is_main => {
                tokio::fs::canonicalize(self.git_directory.join(shared)).await.ok()
            }
            _ => Some(self.git_directory.clone()),
        }
    }
}

/// The nearest checkout that contains the directory.
async fn checkout(directory: &Path) -> Option<Checkout> {
    for top in directory.ancestors() {
        let entry = top.join(".git");
        let Ok(what) = tokio::fs::metadata(&entry).await else { continue };
        let is_main = what.is_dir();
        let git_directory = if is_main {
            entry
        } else {
            let pointer = line(&entry).await?;
            top.join(pointer.strip_prefix("gitdir:")?.trim())
        };
        let git_directory = tokio::fs::canonicalize(git_directory).await.ok()?;
        return Some(Checkout { top: top.to_owned(), git_directory, is_main });
    }
    None
}

/// The text of a one-line file. `None` for a pipe or a device, because reading one could take for ever.
async fn line(path: &Path) -> Option<String> {
    if !tokio::fs::metadata(path).await.is_ok_and(|what| what.is_file()) {
        return None;
    }
    let mut text = String::new();
    let file = tokio::fs::File::open(path).await.ok()?;
    file.take(MAX_BYTES).read_to_string(&mut text).await.ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The setup: a repository with a worktree, a second repository, and files that only look like a worktree.
    #[tokio::test]
    async fn only_a_worktree_of_the_roots_own_repository_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(temp.path()).unwrap();
        let write = |path: &str, text: &str| {
            let path = top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let git = |name: &str| format!("gitdir: {}/{name}\n", top.join("main/.git").display());
        write("main/.git/worktrees/side/commondir", "../..\n");
        write("main/.git/worktrees/other/commondir", "../..\n");
        write("main/sub/file", "");
        write("side/.git", &git("worktrees/side"));
        write("side/deep/file", "");
        write("relative/.git", "gitdir: ../main/.git/worktrees/side\n");
        write("other/.git", &git("worktrees/other"));
        write("stranger/.git/HEAD", "");
        write("submodule/.git", &format!("gitdir: {}\n", top.join("stranger/.git").display()));
        write("away/.git", "gitdir: /\n");
        write("gone/.git", &git("worktrees/gone"));
        write("prefix/.git-lookalike/HEAD", "");
        write("sibling/.git", &format!("gitdir: {}\n", top.join("main/.git/../../stranger/.git").display()));
        write("nonsense/.git", "side");
        write("plain/file", "");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            top.join("plain/.git"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();

        let cases = [
            ("main", "side", Some("side")),
            ("main", "side/deep", Some("side")),
            ("main/sub", "side/deep", Some("side")),
            ("main", "relative", Some("relative")),
            // The root can be a worktree itself.
            ("side", "other", Some("other")),
            ("main", "main", None),
            ("side", "main", None),
            ("main", "stranger", None),
            ("main", "submodule", None),
            ("main", "away", None),
            ("main", "gone", None),
            ("main", "sibling", None),
            ("main", "nonsense", None),
            ("main", "plain", None),
            ("plain", "side", None),
            ("stranger", "side", None),
        ];
        for (root, directory, expected) in cases {
            let found = worktree_of(&top.join(root), &top.join(directory)).await;
            assert_eq!(found, expected.map(|name| top.join(name)), "{root} {directory}");
        }
    }
}
