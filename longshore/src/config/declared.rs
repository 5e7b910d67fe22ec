//! Reads the operator's declarations about where the agent works, and checks the rules between them.

use std::path::{Component, Path, PathBuf};

use longshore_edge::contract::{
    ApprovalPolicy, Environment, EscalationBehavior, FilesystemScope, NetworkAccess, OutsideWorkspace,
    SandboxMode, WriteScope,
};

use super::problem::Problem;
use super::read::Reader;
use super::table;

/// Reads all declarations. `None`: a problem was added to the reader. `workspace`: without it, the roots are not checked.
pub(super) fn read(reader: &mut Reader<'_>, here: &Path, workspace: Option<&Path>) -> Option<Environment> {
    let sandbox_mode = reader.choice(&table::SANDBOX_MODE).and_then(SandboxMode::parse);
    let filesystem_scope = reader.choice(&table::FILESYSTEM_SCOPE).and_then(FilesystemScope::parse);
    let writable_roots = reader.list(&table::WRITABLE_ROOTS);
    let network_access = reader.choice(&table::NETWORK_ACCESS).and_then(NetworkAccess::parse);
    let allowed_domains = reader.list(&table::ALLOWED_DOMAINS);
    let approval_policy = reader.choice(&table::APPROVAL_POLICY).and_then(ApprovalPolicy::parse);
    let escalation_behavior = reader.choice(&table::ESCALATION_BEHAVIOR).and_then(EscalationBehavior::parse);
    let write_scope = reader.choice(&table::WRITE_SCOPE).and_then(WriteScope::parse);
    let outside_workspace = reader.choice(&table::OUTSIDE_WORKSPACE).and_then(OutsideWorkspace::parse);
    let environment = Environment {
        sandbox_mode: sandbox_mode?,
        filesystem_scope: filesystem_scope?,
        writable_roots,
        network_access: network_access?,
        allowed_domains,
        approval_policy: approval_policy?,
        escalation_behavior: escalation_behavior?,
        write_scope: write_scope?,
        outside_workspace: outside_workspace?,
    };
    if let Some(reason) = contradiction(&environment, here, workspace)
        && let Some(written) = reader.written(&table::WRITABLE_ROOTS)
    {
        reader.problem(Problem::rule(&written.source, &table::WRITABLE_ROOTS, reason));
    }
    Some(environment)
}

/// Checks the declared roots against the declared scopes. Returns the reason if they contradict each other.
fn contradiction(environment: &Environment, here: &Path, workspace: Option<&Path>) -> Option<String> {
    let roots = &environment.writable_roots;
    if environment.write_scope == WriteScope::None && !roots.is_empty() {
        return Some(format!("cannot be declared when {} is none", table::WRITE_SCOPE.key));
    }
    let narrow = [
        (&table::FILESYSTEM_SCOPE, environment.filesystem_scope == FilesystemScope::WorkspaceOnly),
        (&table::WRITE_SCOPE, environment.write_scope == WriteScope::WorkspaceOnly),
    ];
    let (scope, _) = narrow.into_iter().find(|(_, is_narrow)| *is_narrow)?;
    let workspace = workspace?;
    let outside = roots.iter().find(|root| !resolved(here, root).starts_with(workspace))?;
    Some(format!("{outside:?} is not in the workspace, and {} is workspace_only", scope.key))
}

/// The path with links and dots resolved. If the directory does not exist, only dots can be resolved.
fn resolved(here: &Path, root: &str) -> PathBuf {
    let path = here.join(root);
    path.canonicalize().unwrap_or_else(|_| {
        let mut plain = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir => drop(plain.pop()),
                Component::CurDir => {}
                component => plain.push(component),
            }
        }
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::super::setting::{Kind, Setting};
    use super::*;

    #[test]
    fn the_choices_of_the_settings_are_those_of_the_documents() {
        fn words<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> Vec<&'static str> {
            all.iter().map(|value| word(*value)).collect()
        }
        let cases: [(&Setting, Vec<&str>); 7] = [
            (&table::SANDBOX_MODE, words(SandboxMode::ALL, SandboxMode::as_str)),
            (&table::FILESYSTEM_SCOPE, words(FilesystemScope::ALL, FilesystemScope::as_str)),
            (&table::NETWORK_ACCESS, words(NetworkAccess::ALL, NetworkAccess::as_str)),
            (&table::APPROVAL_POLICY, words(ApprovalPolicy::ALL, ApprovalPolicy::as_str)),
            (&table::ESCALATION_BEHAVIOR, words(EscalationBehavior::ALL, EscalationBehavior::as_str)),
            (&table::WRITE_SCOPE, words(WriteScope::ALL, WriteScope::as_str)),
            (&table::OUTSIDE_WORKSPACE, words(OutsideWorkspace::ALL, OutsideWorkspace::as_str)),
        ];
        for (setting, expected) in cases {
            assert_eq!(setting.kind, Kind::Choice(&expected.clone().leak()[..]), "{}", setting.key);
        }
    }

    #[test]
    fn writable_roots_must_fit_the_scopes() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().canonicalize().unwrap();
        let workspace = here.join("workspace");
        std::fs::create_dir_all(workspace.join("out")).unwrap();
        std::fs::create_dir(here.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(here.join("elsewhere"), workspace.join("link")).unwrap();
        let environment = |filesystem_scope, write_scope, root: &str| Environment {
            filesystem_scope,
            write_scope,
            writable_roots: vec![root.to_owned()],
            ..Environment::default()
        };
        let absolute = workspace.join("out").to_str().unwrap().to_owned();
        let only = (FilesystemScope::WorkspaceOnly, WriteScope::WorkspaceOnly);
        let cases = [
            (only.0, WriteScope::Unknown, absolute.as_str(), None),
            (only.0, only.1, "workspace", None),
            (only.0, only.1, "workspace/not/there", None),
            (only.0, only.1, "workspace/../elsewhere", Some("environment.filesystem_scope")),
            (only.0, only.1, "workspace/gone/../../elsewhere", Some("environment.filesystem_scope")),
            (only.0, only.1, "workspace/link", Some("environment.filesystem_scope")),
            (only.0, only.1, "workspace2", Some("environment.filesystem_scope")),
            (FilesystemScope::Unknown, only.1, "/", Some("environment.write_scope")),
            (
                FilesystemScope::Unknown,
                WriteScope::None,
                "workspace",
                Some("environment.write_scope is none"),
            ),
            (FilesystemScope::WorkspaceAndDeclaredRoots, WriteScope::Unrestricted, "/srv", None),
            (FilesystemScope::Unknown, WriteScope::Unknown, "/srv", None),
        ];
        for (filesystem, write, root, expected) in cases {
            let found = contradiction(&environment(filesystem, write, root), &here, Some(&workspace));
            let is_expected = match expected {
                None => found.is_none(),
                Some(words) => found.as_ref().is_some_and(|found| found.contains(words)),
            };
            assert!(is_expected, "{root}: {found:?}");
        }
        let nothing = Environment { write_scope: WriteScope::None, ..Environment::default() };
        assert_eq!(contradiction(&nothing, &here, Some(&workspace)), None);
    }
}
