//! Derives from the plan the facts about this gateway that clients see.

use longshore_edge::contract::Deployment;
use longshore_edge::{AgentSurface, opencode};

use crate::config::Plan;
use crate::config::plan::AgentPlan;

/// The facts of a gateway that clients reach at `public_url`. The edge adds the facts that follow from its credentials.
pub(crate) fn deployment(plan: &Plan, public_url: &str, grpc_url: Option<&str>) -> Deployment {
    let texts = &plan.card;
    let (agent_name, surface) = match &plan.agent {
        AgentPlan::Acp(agent) => (agent.title(), &AgentSurface::PLAIN),
        _ => (opencode::NAME, &opencode::SURFACE),
    };
    let workspace_root = texts.expose_workspace_root.then(|| plan.workspace.display().to_string());
    Deployment {
        title: texts.title.clone(),
        description: texts.description.clone(),
        agent_name: agent_name.to_owned(),
        surface,
        version: texts.version.clone(),
        public_url: public_url.trim_end_matches('/').to_owned(),
        grpc_url: grpc_url.map(str::to_owned),
        documentation_url: texts.documentation_url.as_ref().map(ToString::to_string),
        missing_version: plan.missing_version,
        more_input_modes: plan.input.text_types.iter().chain(&plan.input.media_types).cloned().collect(),
        exposure: plan.output.exposure,
        required_extensions: plan.required_extensions.clone(),
        session_shell: plan.control.session_shell,
        session_share: plan.control.session_share,
        session_delete: plan.control.session_delete,
        workspace_mutations: plan.control.workspace_mutations,
        directory_override: plan.allow_directory_override,
        environment: plan.environment.clone(),
        project: texts.project.clone(),
        agent: plan.prompt.agent.clone(),
        variant: plan.prompt.variant.clone(),
        workspace_root,
        metrics: plan.metrics,
        push: plan.push.enabled,
        websocket: plan.listen.websocket.clone(),
        ..Deployment::default()
    }
}

#[cfg(test)]
mod tests {
    use longshore_edge::contract::{
        ApprovalPolicy, Environment, EscalationBehavior, FilesystemScope, MissingVersion, NetworkAccess,
        OutsideWorkspace, SandboxMode, WriteScope,
    };
    use longshore_edge::{Exposure, Extension};

    use super::*;
    use crate::config::{Flags, ProcessContext, load};

    fn deployment_of(variables: &[(&str, &str)]) -> (Deployment, String) {
        let directory = tempfile::tempdir().unwrap();
        let environment = variables.iter().copied().chain([("HOME", "/home/ada")]).collect();
        let directory = directory.path().canonicalize().unwrap();
        let context = ProcessContext { directory: directory.clone(), environment };
        let plan = load(&Flags::new(), None, &context).unwrap().plan;
        (deployment(&plan, "https://agent.example.com/a/", None), directory.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_deployment_shows_everything_that_was_configured() {
        let (shown, workspace) = deployment_of(&[
            ("A2A_TITLE", "Agent"),
            ("A2A_DESCRIPTION", "Works."),
            ("A2A_VERSION", "3.2.1"),
            ("A2A_PROJECT", "harbour"),
            ("A2A_DOCUMENTATION_URL", "https://example.com/agent"),
            ("A2A_ALLOW_DIRECTORY_OVERRIDE", "false"),
            ("A2A_EXPOSE_WORKSPACE_ROOT_IN_CARD", "true"),
            ("A2A_SANDBOX_MODE", "workspace-write"),
            ("A2A_SANDBOX_FILESYSTEM_SCOPE", "workspace_and_declared_roots"),
            ("A2A_SANDBOX_WRITABLE_ROOTS", "/srv/cache, /srv/out"),
            ("A2A_NETWORK_ACCESS", "restricted"),
            ("A2A_NETWORK_ALLOWED_DOMAINS", "[\"example.com\"]"),
            ("A2A_APPROVAL_POLICY", "on-request"),
            ("A2A_APPROVAL_ESCALATION_BEHAVIOR", "manual"),
            ("A2A_WRITE_ACCESS_SCOPE", "workspace_and_declared_roots"),
            ("A2A_WRITE_ACCESS_OUTSIDE_WORKSPACE", "disallowed"),
            ("A2A_ENABLE_SESSION_SHELL", "true"),
            ("A2A_ENABLE_WORKSPACE_MUTATIONS", "true"),
            ("LONGSHORE_SESSION_SHARE", "true"),
            ("LONGSHORE_SESSION_DELETE", "true"),
            ("IACCODE_A2A_TEXT_MIME_TYPES", "application/x-log"),
            ("LONGSHORE_MISSING_VERSION", "0.3"),
            ("LONGSHORE_THINKING_EXPOSURE", "tool_trace"),
            ("LONGSHORE_REQUIRED_EXTENSIONS", Extension::StreamHints.uri()),
            ("OPENCODE_AGENT", "build"),
            ("OPENCODE_VARIANT", "high"),
        ]);
        let expected = Deployment {
            title: "Agent".to_owned(),
            description: "Works.".to_owned(),
            version: "3.2.1".to_owned(),
            public_url: "https://agent.example.com/a".to_owned(),
            documentation_url: Some("https://example.com/agent".to_owned()),
            missing_version: MissingVersion::V03,
            more_input_modes: vec!["application/x-log".to_owned()],
            exposure: Exposure { raw_thinking: false, tool_trace: true },
            required_extensions: vec![Extension::StreamHints],
            directory_override: false,
            session_shell: true,
            workspace_mutations: true,
            session_share: true,
            session_delete: true,
            environment: Environment {
                sandbox_mode: SandboxMode::WorkspaceWrite,
                filesystem_scope: FilesystemScope::WorkspaceAndDeclaredRoots,
                writable_roots: vec!["/srv/cache".to_owned(), "/srv/out".to_owned()],
                network_access: NetworkAccess::Restricted,
                allowed_domains: vec!["example.com".to_owned()],
                approval_policy: ApprovalPolicy::OnRequest,
                escalation_behavior: EscalationBehavior::Manual,
                write_scope: WriteScope::WorkspaceAndDeclaredRoots,
                outside_workspace: OutsideWorkspace::Disallowed,
            },
            project: Some("harbour".to_owned()),
            agent: Some("build".to_owned()),
            variant: Some("high".to_owned()),
            workspace_root: Some(workspace),
            ..Deployment::of_opencode()
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_deployment_shows_nothing_that_was_not_configured() {
        let (shown, workspace) = deployment_of(&[]);
        assert!(!format!("{shown:?}").contains(&workspace), "{shown:?}");
        // Because both are equal, tests of the documents can use the default deployment.
        let expected =
            Deployment { public_url: "https://agent.example.com/a".to_owned(), ..Deployment::of_opencode() };
        assert_eq!(shown, expected);
    }
}
