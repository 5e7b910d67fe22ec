//! Providers, models, projects and places; agents and commands by their names.

use std::collections::BTreeSet;

use longshore_model::{ModelInfo, ModelName, Order, OrderPart, Subtask, Worktree};
use longshore_testkit::fake_opencode::Fault;

use super::*;

#[tokio::test]
async fn providers_and_models_are_told_without_a_key() {
    let bench = Bench::new();
    insta::assert_debug_snapshot!("providers", bench.look(None, &ControlQuery::Providers).await.unwrap());
    let models = async |provider: Option<&str>| {
        let look = ControlQuery::Models { provider: provider.map(str::to_owned) };
        match bench.look(None, &look).await.unwrap() {
            ControlResult::Models(models) => models.items,
            told => panic!("models: {told:?}"),
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
    bench.stop().await;
}

#[tokio::test]
async fn where_a_project_is_is_told_of_the_own_one_only() {
    let bench = Bench::new();
    bench.fake.project(|project| {
        project.elsewhere.push("/srv/others".to_owned());
        project.sandboxes.push("/srv/copy".to_owned());
    });
    let told = bench.look(None, &ControlQuery::Projects).await.unwrap();
    let ControlResult::Projects(projects) = told else { panic!("projects: {told:?}") };
    assert!(projects.len() > 1, "{projects:?}");
    for project in &projects {
        let is_own = project.id == "9b4c0d";
        assert_eq!(project.worktree.as_deref(), is_own.then_some(bench.root()), "{project:?}");
        assert!(project.sandboxes.is_empty(), "a copy is no worktree: {project:?}");
    }
    let told = bench.look(None, &ControlQuery::Project).await.unwrap();
    let ControlResult::Project(current) = told else { panic!("a project: {told:?}") };
    assert_eq!((current.id.as_str(), current.worktree.as_deref()), ("9b4c0d", Some(bench.root())));
    bench.stop().await;
}

/// O1: OpenCode lists them as mere paths. Among them is whatever it ever saw: clones, and what is gone.
#[tokio::test]
async fn worktrees_are_told_by_name_with_the_branch_that_is_on_the_disk() {
    let bench = Bench::new();
    let place = tempfile::tempdir().unwrap();
    let place = std::fs::canonicalize(place.path()).unwrap();
    let git = std::path::Path::new(bench.root()).join(".git/worktrees/feature-one");
    std::fs::create_dir_all(&git).unwrap();
    std::fs::write(git.join("HEAD"), "ref: refs/heads/opencode/feature-one\n").unwrap();
    std::fs::create_dir_all(place.join("feature-one/deep")).unwrap();
    std::fs::write(place.join("feature-one/.git"), format!("gitdir: {}\n", git.display())).unwrap();
    let at = |name: &str| place.join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(place.join("clone/.git")).unwrap();
    let (own, deep, gone, clone) = (at("feature-one"), at("feature-one/deep"), at("gone"), at("clone"));
    let listed = vec![clone, own.clone(), deep, gone, bench.root().to_owned()];
    bench.fake.project(|project| {
        project.worktrees.clone_from(&listed);
        project.sandboxes.clone_from(&listed);
    });
    let told = bench.look(None, &ControlQuery::Worktrees).await.unwrap();
    let worktree = |name: &str, branch: Option<&str>, directory: &str| Worktree {
        name: name.to_owned(),
        branch: branch.map(str::to_owned),
        directory: directory.to_owned(),
    };
    let branch = Some("opencode/feature-one");
    assert_eq!(told, ControlResult::Worktrees(vec![worktree("feature-one", branch, &own)]));
    let told = bench.look(None, &ControlQuery::Project).await.unwrap();
    assert!(
        matches!(&told, ControlResult::Project(project) if project.sandboxes == [own.clone()]),
        "{told:?}"
    );
    let told = bench.look(None, &ControlQuery::Projects).await.unwrap();
    assert!(matches!(&told, ControlResult::Projects(all) if all[0].sandboxes == [own.clone()]), "{told:?}");
    bench.fake.project(|project| project.workspaces.push(("wrk_1".to_owned(), own.clone())));
    let told = bench.look(None, &ControlQuery::Workspaces).await.unwrap();
    let ControlResult::Workspaces(workspaces) = told else { panic!("workspaces: {told:?}") };
    let [workspace] = workspaces.as_slice() else { panic!("one: {workspaces:?}") };
    assert_eq!((workspace.id.as_str(), workspace.directory.as_deref()), ("wrk_1", Some(own.as_str())));
    bench.stop().await;
}

#[tokio::test]
async fn agents_and_commands_are_offered_by_name() {
    let bench = Bench::new();
    bench.fake.project(|project| {
        let odd = project.commands[0].clone();
        project.commands.push(longshore_testkit::fake_opencode::Command { name: "a\nb".to_owned(), ..odd });
    });
    let offers = bench.agent.offers().await.unwrap();
    check_shown(&format!("{offers:?}"));
    insta::assert_debug_snapshot!(offers);
    bench.fake.fault_always("GET", "/command", Fault::Html);
    assert_eq!(bench.agent.offers().await.unwrap(), offers, "it is known for a while");
    bench.stop().await;
}

/// OpenCode takes an order whatever it names, and then fails, or has a session that no prompt works in any more.
#[tokio::test]
async fn an_order_is_refused_by_the_field_that_names_what_is_not_there() {
    let bench = Bench::new();
    let session = bench.session("ses_a");
    let model = |name: &str| ModelName::parse(name);
    let options = |change: fn(&mut PromptOptions)| {
        let mut options = PromptOptions::default();
        change(&mut options);
        options
    };
    let prompt = |parts| Order::Prompt { parts, withheld: BTreeSet::new() };
    let command = |name: &str| Order::Command { name: name.to_owned(), arguments: String::new() };
    let subtask = |agent: &str, model: Option<ModelName>| {
        OrderPart::Subtask(Subtask {
            prompt: "look".to_owned(),
            description: "A look".to_owned(),
            agent: agent.to_owned(),
            model,
            command: None,
        })
    };
    let calls = |agent: &str| OrderPart::Agent(agent.to_owned());
    let none = PromptOptions::default();
    let cases = [
        (prompt(vec![]), none.clone(), None),
        (
            prompt(vec![OrderPart::Content, calls("plan"), subtask("explore", model("scripted/vision"))]),
            none.clone(),
            None,
        ),
        (prompt(vec![OrderPart::Content, calls("nobody")]), none.clone(), Some("request.parts[1].name")),
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
        let checked = bench.agent.check_order(&session, &order, &options, false).await;
        match expected {
            None => checked.unwrap_or_else(|error| panic!("{order:?}: {error}")),
            Some(field) => assert_eq!(refused_field(checked), field, "{order:?}"),
        }
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_order_whose_names_cannot_be_looked_up_is_not_passed_on() {
    for (fault, expected) in [
        (Fault::Status(500), ErrorKind::UpstreamHttpError),
        (Fault::Html, ErrorKind::UpstreamPayloadError),
        (Fault::CutBefore, ErrorKind::UpstreamUnreachable),
    ] {
        let bench = Bench::new();
        let session = bench.session("ses_a");
        bench.fake.fault_always("GET", "/command", fault);
        let order = Order::Command { name: "review".to_owned(), arguments: String::new() };
        let refused = bench.agent.check_order(&session, &order, &PromptOptions::default(), false).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), expected, "{refused:?}");
        bench.stop().await;
    }
}
