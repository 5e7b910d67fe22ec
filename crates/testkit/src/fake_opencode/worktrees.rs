//! Worktrees and workspaces. The fake creates and removes them on disk with git, so that a mistake of a gateway shows there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::answer::{Answer, Kind, named, null, ok};
use super::check;
use super::gate::Gate;
use super::global::Location;
use super::ids::{fresh, now_ms};
use super::project::PROJECT_ID;
use super::reads::wrong_id;
use super::routes::{delete_session, dispose};
use super::state::Shared;
use super::world::{event, text};

/// The shortest time in which the real OpenCode reports a worktree as ready after its answer.
const SOON: Duration = Duration::from_millis(20);

/// What OpenCode reports about a requested worktree after its answer, on `/global/event` only.
#[derive(Clone, Debug, Default)]
pub enum WorktreeReport {
    /// Ready, soon after the answer.
    #[default]
    Ready,
    /// Ready, before the answer.
    Early,
    /// Ready, when the test opens the gate.
    Late(Gate),
    /// Failed with this text.
    Failed(&'static str),
    /// Nothing, although the worktree is ready.
    Lost,
}

pub(super) async fn create_worktree(shared: &Arc<Shared>, directory: &str, body: &Value) -> Answer {
    if !body.is_null()
        && let Some(refused) = check::texts(body, &[])
            .or_else(|| check::optional_texts(body, &["name", "startCommand"], "string | undefined"))
    {
        return refused;
    }
    let made = match make(shared, directory, text(body, "name"), Branch::New).await {
        Ok(made) => made,
        Err(refused) => return refused,
    };
    let start = body["startCommand"].as_str().map(str::to_owned);
    follow(shared, made.clone(), start).await;
    ok(json!({"name": made.name, "branch": made.branch, "directory": made.directory}))
}

/// Removes any directory, listed or not, except the root.
pub(super) async fn remove_worktree(shared: &Shared, body: &Value) -> Answer {
    if let Some(refused) = check::texts(body, &["directory"]) {
        return refused;
    }
    let named_directory = text(body, "directory");
    let target =
        if named_directory.is_empty() { shared.directory.clone() } else { resolved(named_directory) };
    // OpenCode disposes the instance first, even if the directory cannot be removed.
    dispose(shared, &target).await;
    if target == shared.directory {
        let message = format!("fatal: '{target}' is a main working tree\n");
        return named(400, "WorktreeRemoveFailedError", &message);
    }
    remove(shared, &target).await;
    shared.change(|state| {
        state.project.worktrees.retain(|known| resolved(known) != target && *known != target);
    });
    project_updated(shared).await;
    ok(json!(true))
}

pub(super) async fn reset_worktree(shared: &Shared, body: &Value) -> Answer {
    if let Some(refused) = check::texts(body, &["directory"]) {
        return refused;
    }
    let target = resolved(text(body, "directory"));
    if target == shared.directory {
        return named(400, "WorktreeResetFailedError", "Cannot reset the primary workspace");
    }
    let is_listed = shared.lock().project.worktrees.iter().any(|known| resolved(known) == target);
    if !is_listed {
        return named(400, "WorktreeResetFailedError", "Worktree not found");
    }
    for arguments in [["reset", "--hard", "--quiet"], ["clean", "-ffdx", "--quiet"]] {
        if let Err(message) = git(Path::new(&target), &arguments).await {
            return named(400, "WorktreeResetFailedError", &message);
        }
    }
    ok(json!(true))
}

pub(super) async fn create_workspace(shared: &Arc<Shared>, directory: &str, body: &Value) -> Answer {
    if let Some(refused) = check::texts(body, &["type"]).or_else(|| check::id(body, "id", "wrk")) {
        return refused;
    }
    let refused = |message: &str| named(400, "WorkspaceCreateError", message);
    let kind = text(body, "type");
    if !shared.lock().project.adapters.contains(&kind) {
        return refused(&format!("Unknown workspace adapter: {kind}"));
    }
    let id = body["id"].as_str().map_or_else(|| fresh("wrk"), str::to_owned);
    let (is_known, is_on) = {
        let state = shared.lock();
        (state.project.workspace(&id).is_some(), state.project.has_workspaces)
    };
    if is_known {
        return refused(&format!(
            "Failed query: insert into \"workspace\" (\"id\", \"type\", \"name\", \"branch\", \"directory\") values (?, ?, ?, ?, ?)\nparams: {id},worktree,brave-forest,,{}",
            shared.data
        ));
    }
    let made = match make(shared, directory, "", Branch::None).await {
        Ok(made) => made,
        Err(refused) => return refused,
    };
    if !is_on {
        return refused("Timed out waiting for global event");
    }
    let details = json!({
        "id": id, "type": kind, "name": made.name, "branch": body["branch"], "directory": made.directory,
        "extra": body["extra"], "projectID": PROJECT_ID, "timeUsed": now_ms(),
    });
    shared.change(|state| state.project.keep_workspace(&id, &made.directory, details.clone()));
    let status = event("workspace.status", json!({"workspaceID": id, "status": "connected"}));
    let location = Location { directory: "global", project: None, workspace: Some(&id) };
    shared.emit_globally(location, &status).await;
    follow(shared, made, None).await;
    ok(details)
}

pub(super) async fn remove_workspace(shared: &Shared, id: &str) -> Answer {
    if let Some(refused) = wrong_id(Kind::Params, "id", "wrk", id) {
        return refused;
    }
    let Some(details) = shared.change(|state| state.project.forget_workspace(id)) else { return null() };
    let Value::Array(sessions) = shared.lock().world.sessions() else { return null() };
    for session in sessions.iter().filter(|session| session["workspaceID"] == id) {
        delete_session(shared, text(session, "id")).await;
    }
    let directory = text(&details, "directory");
    dispose(shared, directory).await;
    // The list of worktrees keeps the removed directory.
    remove(shared, directory).await;
    ok(details)
}

/// A new worktree whose directory exists, without its files.
#[derive(Clone, Debug)]
struct Made {
    name: String,
    branch: Option<String>,
    directory: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Branch {
    New,
    None,
}

async fn make(shared: &Shared, directory: &str, name: &str, branch: Branch) -> Result<Made, Answer> {
    let root = Path::new(&shared.directory);
    let is_here = shared.lock().project.path_of(&shared.directory, directory).is_some();
    if !is_here || !root.join(".git").exists() {
        let message = "Worktrees are only supported for git projects";
        return Err(named(400, "WorktreeNotGitError", message));
    }
    let parent = PathBuf::from(&shared.data).join("worktree").join(PROJECT_ID);
    let mut name = slug(name);
    if name.is_empty() || parent.join(&name).exists() {
        // OpenCode makes up a name.
        let id = fresh("wt");
        let more = format!("calm-{}", &id[id.len() - 6..]);
        name = if name.is_empty() { more } else { format!("{name}-{more}") };
    }
    let directory = parent.join(&name).to_string_lossy().into_owned();
    let new_branch = format!("opencode/{name}");
    let mut arguments = vec!["worktree", "add", "--no-checkout"];
    match branch {
        Branch::New => arguments.extend(["-b", new_branch.as_str(), directory.as_str()]),
        Branch::None => arguments.extend(["--detach", directory.as_str()]),
    }
    if let Err(message) = git(root, &arguments).await {
        return Err(named(400, "WorktreeCreateFailedError", &message));
    }
    shared.change(|state| state.project.worktrees.push(directory.clone()));
    project_updated(shared).await;
    Ok(Made { name, branch: (branch == Branch::New).then_some(new_branch), directory })
}

/// Does what follows the answer: checks the files out, then reports the worktree.
async fn follow(shared: &Arc<Shared>, made: Made, start: Option<String>) {
    let news = shared.lock().project.news.clone();
    let is_early = matches!(news, WorktreeReport::Early);
    let following = Arc::clone(shared);
    let whole = async move {
        let directory = Path::new(&made.directory);
        // Another client may have removed it meanwhile.
        let _ = git(directory, &["reset", "--hard", "--quiet"]).await;
        if let Some(start) = start {
            let _ = Command::new("sh").arg("-c").arg(start).current_dir(directory).output().await;
        }
        project_updated(&following).await;
        let mut properties = json!({"name": made.name});
        if let Some(branch) = &made.branch {
            properties["branch"] = branch.as_str().into();
        }
        let mut kind = "worktree.ready";
        match news {
            WorktreeReport::Early => {}
            WorktreeReport::Ready => tokio::time::sleep(SOON).await,
            WorktreeReport::Late(gate) => gate.pass().await,
            WorktreeReport::Lost => return,
            WorktreeReport::Failed(message) => {
                kind = "worktree.failed";
                properties = json!({"message": message});
            }
        }
        let location = Location { directory: &made.directory, project: Some(PROJECT_ID), workspace: None };
        following.emit_globally(location, &event(kind, properties)).await;
    };
    if is_early {
        whole.await;
    } else {
        let life = shared.lock().life.clone();
        shared.tasks.spawn("fake opencode worktree", async move {
            tokio::select! {
                () = life.cancelled() => {}
                () = whole => {}
            }
        });
    }
}

/// OpenCode reports the whole project whenever something about it changes.
async fn project_updated(shared: &Shared) {
    let updated = {
        let state = shared.lock();
        let mut current = state.project.current(&shared.directory, &shared.directory);
        current["sandboxes"] = json!(state.project.worktrees);
        event("project.updated", current)
    };
    let location = Location { directory: "global", project: Some(PROJECT_ID), workspace: None };
    shared.emit_globally(location, &updated).await;
}

/// Removes a directory and, if git knows it as a worktree of the root, its branch.
async fn remove(shared: &Shared, target: &str) {
    shared.change(|state| state.removed.push(target.to_owned()));
    let root = Path::new(&shared.directory);
    let branch = git(Path::new(target), &["symbolic-ref", "--quiet", "--short", "HEAD"]).await;
    let is_worktree = git(root, &["worktree", "remove", "--force", target]).await.is_ok();
    if let Ok(branch) = branch
        && is_worktree
    {
        let _ = git(root, &["branch", "-D", branch.trim()]).await;
    }
    // A faulty gateway may name any directory: only directories that tests have created are removed.
    let temporary = resolved(&std::env::temp_dir().to_string_lossy());
    let is_temporary = Path::new(target).starts_with(&temporary) && target != temporary;
    if is_temporary && Path::new(target).exists() {
        // Git may have removed it already.
        let _ = std::fs::remove_dir_all(target);
    }
}

/// The output of git, or its error text.
pub(super) async fn git(directory: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(directory);
    // Neither the user's settings nor those of a git hook that runs the tests may make a difference.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for set_by_hook in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(set_by_hook);
    }
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Ada").env(format!("GIT_{role}_EMAIL"), "ada@example.com");
    }
    let output = command.output().await.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The name in lower case, with only letters, digits and dashes.
fn slug(name: &str) -> String {
    let name = name.to_lowercase();
    let words = name.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

fn resolved(directory: &str) -> String {
    std::fs::canonicalize(directory)
        .map_or_else(|_| directory.to_owned(), |path| path.to_string_lossy().into_owned())
}
