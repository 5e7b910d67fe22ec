//! Providers, models, projects, worktrees and workspaces; agents and commands by their names.

use std::collections::BTreeSet;

use longshore_model::{ModelInfo, ModelName, NativePrompt, NativePromptPart, Subtask, Worktree};
use longshore_testkit::fake_opencode::Fault;

use super::*;

#[tokio::test]
async fn providers_and_models_are_listed_without_keys() {
    let fixture = Fixture::new();
    insta::assert_debug_snapshot!("providers", fixture.query(None, &ControlQuery::Providers).await.unwrap());
    let models = async |provider: Option<&str>| {
        let query = ControlQuery::Models { provider: provider.map(str::to_owned) };
        match fixture.query(None, &query).await.unwrap() {
            ControlResult::Models(models) => models.items,
            result => panic!("models: {result:?}"),
        }
    };
    let all = models(None).await;
    let name = |model: &ModelInfo| format!("{}/{}", model.provider, model.id);
    insta::assert_debug_snapshot!(
        "a_model",
        all.iter().find(|model| name(model) == "scripted/scripted").unwrap()
    );
    let scripted = models(Some("scripted")).await;
    assert!(!scripted.is_empty() && scripted.len() < all.len(), "{all:?}");
    assert!(scripted.iter().all(|model| model.provider == "scripted"));
    assert_eq!(models(Some("nobody")).await, []);
    fixture.stop().await;
}

#[tokio::test]
async fn only_the_gateways_own_project_is_listed_with_its_directory() {
    let fixture = Fixture::new();
    fixture.fake.project(|project| {
        project.elsewhere.push("/srv/others".to_owned());
        project.sandboxes.push("/srv/copy".to_owned());
    });
    let result = fixture.query(None, &ControlQuery::Projects).await.unwrap();
    let ControlResult::Projects(projects) = result else { panic!("projects: {result:?}") };
    assert!(projects.len() > 1, "{projects:?}");
    for project in &projects {
        let is_own = project.id == "9b4c0d";
        assert_eq!(project.worktree.as_deref(), is_own.then_some(fixture.root()), "{project:?}");
        assert!(project.sandboxes.is_empty(), "a copy is not a worktree: {project:?}");
    }
    let result = fixture.query(None, &ControlQuery::Project).await.unwrap();
    let ControlResult::Project(current) = result else { panic!("a project: {result:?}") };
    assert_eq!((current.id.as_str(), current.worktree.as_deref()), ("9b4c0d", Some(fixture.root())));
    fixture.stop().await;
}

/// O1: OpenCode lists plain paths, among them every directory that it ever saw: clones, and directories that are gone.
#[tokio::test]
async fn worktrees_are_listed_by_name_with_the_branch_on_the_disk() {
    let fixture = Fixture::new();
    let temp = tempfile::tempdir().unwrap();
    let temp = std::fs::canonicalize(temp.path()).unwrap();
    let git = std::path::Path::new(fixture.root()).join(".git/worktrees/feature-one");
    std::fs::create_dir_all(&git).unwrap();
    std::fs::write(git.join("HEAD"), "ref: refs/heads/opencode/feature-one\n").unwrap();
    std::fs::create_dir_all(temp.join("feature-one/deep")).unwrap();
    std::fs::write(temp.join("feature-one/.git"), format!("gitdir: {}\n", git.display())).unwrap();
    let at = |name: &str| temp.join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(temp.join("clone/.git")).unwrap();
    let (own, deep, gone, clone) = (at("feature-one"), at("feature-one/deep"), at("gone"), at("clone"));
    let listed = vec![clone, own.clone(), deep, gone, fixture.root().to_owned()];
    fixture.fake.project(|project| {
        project.worktrees.clone_from(&listed);
        project.sandboxes.clone_from(&listed);
    });
    let result = fixture.query(None, &ControlQuery::Worktrees).await.unwrap();
    let worktree = |name: &str, branch: Option<&str>, directory: &str| Worktree {
        name: name.to_owned(),
        branch: branch.map(str::to_owned),
        directory: directory.to_owned(),
    };
    let branch = Some("opencode/feature-one");
    assert_eq!(result, ControlResult::Worktrees(vec![worktree("feature-one", branch, &own)]));
    let result = fixture.query(None, &ControlQuery::Project).await.unwrap();
    assert!(
        matches!(&result, ControlResult::Project(project) if project.sandboxes == [own.clone()]),
        "{result:?}"
    );
    let result = fixture.query(None, &ControlQuery::Projects).await.unwrap();
    assert!(
        matches!(&result, ControlResult::Projects(all) if all[0].sandboxes == [own.clone()]),
        "{result:?}"
    );
    fixture.fake.project(|project| project.workspaces.push(("wrk_1".to_owned(), own.clone())));
    let result = fixture.query(None, &ControlQuery::Workspaces).await.unwrap();
    let ControlResult::Workspaces(workspaces) = result else { panic!("workspaces: {result:?}") };
    let [workspace] = workspaces.as_slice() else { panic!("one: {workspaces:?}") };
    assert_eq!((workspace.id.as_str(), workspace.directory.as_deref()), ("wrk_1", Some(own.as_str())));
    fixture.stop().await;
}

#[tokio::test]
async fn agents_and_commands_are_offered_by_name() {
    let fixture = Fixture::new();
    fixture.fake.project(|project| {
        let odd = project.commands[0].clone();
        project.commands.push(longshore_testkit::fake_opencode::Command { name: "a\nb".to_owned(), ..odd });
    });
    let offers = fixture.agent.offers().await.unwrap();
    check_shown(&format!("{offers:?}"));
    insta::assert_debug_snapshot!(offers);
    fixture.fake.fault_always("GET", "/command", Fault::Html);
    assert_eq!(fixture.agent.offers().await.unwrap(), offers, "the offers are cached for a while");
    fixture.stop().await;
}

/// OpenCode accepts a native prompt with any names, and then fails, or leaves a session in which no prompt works any more.
#[tokio::test]
async fn a_native_prompt_is_refused_by_the_field_with_the_unknown_name() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    let model = |name: &str| ModelName::parse(name);
    let options = |change: fn(&mut PromptOptions)| {
        let mut options = PromptOptions::default();
        change(&mut options);
        options
    };
    let prompt = |parts| NativePrompt::Prompt { parts, withheld: BTreeSet::new() };
    let command = |name: &str| NativePrompt::Command {
        name: name.to_owned(),
        arguments: String::new(),
        may_run: false,
    };
    let subtask = |agent: &str, model: Option<ModelName>| {
        NativePromptPart::Subtask(Subtask {
            prompt: "query".to_owned(),
            description: "A query".to_owned(),
            agent: agent.to_owned(),
            model,
            command: None,
        })
    };
    let calls = |agent: &str| NativePromptPart::Agent(agent.to_owned());
    let none = PromptOptions::default();
    let cases = [
        (prompt(vec![]), none.clone(), None),
        (
            prompt(vec![
                NativePromptPart::Content,
                calls("plan"),
                subtask("explore", model("scripted/vision")),
            ]),
            none.clone(),
            None,
        ),
        (
            prompt(vec![NativePromptPart::Content, calls("nobody")]),
            none.clone(),
            Some("request.parts[1].name"),
        ),
        (prompt(vec![subtask("nobody", None)]), none.clone(), Some("request.parts[0].agent")),
        (
            prompt(vec![subtask("explore", model("scripted/none"))]),
            none.clone(),
            Some("request.parts[0].model"),
        ),
        (prompt(vec![]), options(|options| options.agent = Some("nobody".to_owned())), Some("request.agent")),
        (
            prompt(vec![]),
            options(|options| options.model = ModelName::parse("no/model")),
            Some("request.model"),
        ),
        (
            prompt(vec![]),
            options(|options| {
                options.model = ModelName::parse("scripted/scripted");
                options.variant = Some("huge".to_owned());
            }),
            Some("request.variant"),
        ),
        (command("review"), none.clone(), None),
        (command("nothing"), none.clone(), Some("request.command")),
        (
            command("review"),
            options(|options| options.agent = Some("nobody".to_owned())),
            Some("request.agent"),
        ),
    ];
    for (order, options, expected) in cases {
        let checked = fixture.agent.check_native_prompt(&session, &order, &[], &options).await;
        match expected {
            None => checked.unwrap_or_else(|error| panic!("{order:?}: {error}")),
            Some(field) => assert_eq!(refused_field(checked), field, "{order:?}"),
        }
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_native_prompt_whose_names_cannot_be_checked_is_refused() {
    for (fault, expected) in [
        (Fault::Status(500), ErrorKind::UpstreamHttpError),
        (Fault::Html, ErrorKind::UpstreamPayloadError),
        (Fault::CutBefore, ErrorKind::UpstreamUnreachable),
    ] {
        let fixture = Fixture::new();
        let session = fixture.session("ses_a");
        fixture.fake.fault_always("GET", "/command", fault);
        let order =
            NativePrompt::Command { name: "review".to_owned(), arguments: String::new(), may_run: false };
        let refused =
            fixture.agent.check_native_prompt(&session, &order, &[], &PromptOptions::default()).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), expected, "{refused:?}");
        fixture.stop().await;
    }
}
