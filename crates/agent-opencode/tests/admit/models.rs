//! Models, variants and agents.

use longshore_engine::port::{
    ContentFacts, FileSource, Input, InputFile, NewSession, Prompting, TurnRequest,
};
use longshore_model::TaskId;
use longshore_testkit::fake_opencode::{Fault, Model, Turn};
use serde_json::Value;

use super::*;

fn agent(name: &str) -> PromptOptions {
    PromptOptions { agent: Some(name.to_owned()), ..PromptOptions::default() }
}

fn variant(name: &str, options: PromptOptions) -> PromptOptions {
    PromptOptions { variant: Some(name.to_owned()), ..options }
}

#[tokio::test]
async fn known_names_are_admitted_and_unknown_ones_are_refused_with_the_available_names() {
    let fixture = Fixture::new();
    for name in ["scripted/scripted", "scripted/vendor/deep"] {
        fixture.with_options(&model(name)).await.unwrap();
    }
    fixture.with_options(&variant("high", model("scripted/scripted"))).await.unwrap();
    // OpenCode lists no variants for this model, and for the next prompt the model is not known at all.
    fixture.with_options(&variant("high", model("scripted/vision"))).await.unwrap();
    fixture.with_options(&variant("high", PromptOptions::default())).await.unwrap();
    for name in ["build", "plan", "explore", "title"] {
        fixture.with_options(&agent(name)).await.unwrap();
    }
    let mut seen = 0;
    assert_eq!(fixture.asked(&mut seen), ["/config/providers", "/agent"], "each list is read once");
    let cases = [
        (
            model("nobody/scripted"),
            ("metadata.shared.model", "OpenCode has no provider of this name; there is: scripted."),
        ),
        (
            model("scripted/Scripted"),
            (
                "metadata.shared.model",
                "OpenCode's provider 'scripted' has no model of this name; there is: scripted, vendor/deep, vision.",
            ),
        ),
        (
            variant("huge", model("scripted/scripted")),
            ("metadata.opencode.variant", "The model has no variant of this name; there is: high, low."),
        ),
        (
            PromptOptions { model: Some(ModelName::plain("scripted")), ..PromptOptions::default() },
            (
                "metadata.shared.model.providerID",
                "is required together with modelID: a model of OpenCode is named by both",
            ),
        ),
        (
            PromptOptions { mode: Some("plan".to_owned()), ..PromptOptions::default() },
            (
                "metadata.shared.mode",
                "OpenCode has no modes; name one of its agents in metadata.opencode.agent, such as plan.",
            ),
        ),
        (
            agent("nobody"),
            ("metadata.opencode.agent", "OpenCode has no agent of this name; there is: build, plan."),
        ),
    ];
    for (options, expected) in cases {
        for _ in 0..2 {
            let (field, text) = refusal(&fixture, fixture.with_options(&options).await);
            assert_eq!((field.as_str(), text.as_str()), expected);
        }
    }
    assert_eq!(fixture.asked(&mut seen), <[&str; 0]>::default(), "the catalogue was just read");
    fixture.stop().await;
}

#[tokio::test]
async fn a_directory_is_checked_before_the_model() {
    let fixture = Fixture::new();
    let refused = fixture.admit(Some("/etc"), None, &model("nobody/nothing")).await;
    assert_eq!(refusal(&fixture, refused).0, "metadata.opencode.directory");
    assert_eq!(fixture.asked(&mut 0), ["/experimental/workspace"]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_long_list_of_names_is_cut() {
    let fixture = Fixture::new();
    fixture.fake.project(|project| {
        let one = project.models[0].clone();
        project.models =
            (0..30).map(|number| Model { name: format!("m{number:02}"), ..one.clone() }).collect();
    });
    let (_, text) = refusal(&fixture, fixture.with_options(&model("scripted/none")).await);
    let expected = "OpenCode's provider 'scripted' has no model of this name; there is: m00, m01, m02, m03, m04 and 25 more.";
    assert_eq!(text, expected);
    fixture.stop().await;
}

/// A directory can have a configuration of its own.
#[tokio::test]
async fn models_depend_on_the_directory() {
    let fixture = Fixture::new();
    make(&fixture.inside("in"));
    fixture.admit(Some("in"), None, &model("scripted/vision")).await.unwrap();
    fixture.with_options(&model("scripted/vision")).await.unwrap();
    let asked: Vec<String> = fixture.fake.log().into_iter().map(|request| request.directory).collect();
    assert_eq!(asked, [fixture.inside("in"), fixture.fake.directory().to_owned()]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_variant_is_checked_against_the_default_model_too() {
    let fixture = Fixture::with(true, model("scripted/scripted"));
    fixture.with_options(&variant("low", PromptOptions::default())).await.unwrap();
    let refused = fixture.with_options(&variant("huge", PromptOptions::default())).await;
    assert_eq!(refusal(&fixture, refused).0, "metadata.opencode.variant");
    fixture.stop().await;
    // The operator's configuration is not the caller's mistake.
    let fixture = Fixture::with(true, model("nobody/nothing"));
    fixture.with_options(&variant("huge", PromptOptions::default())).await.unwrap();
    fixture.stop().await;
}

#[tokio::test]
async fn without_a_response_of_opencode_nothing_is_refused() {
    for fault in [Fault::Status(500), Fault::Html, Fault::CutBefore, Fault::Body("7"), Fault::Status(401)] {
        let fixture = Fixture::new();
        fixture.fake.fault_always("GET", "", fault.clone());
        for _ in 0..3 {
            fixture.with_options(&model("nobody/nothing")).await.unwrap();
            fixture.with_options(&agent("nobody")).await.unwrap();
        }
        fixture.stop().await;
    }
    let fixture = Fixture::new();
    fixture.fake.kill().await;
    assert_eq!(fixture.with_options(&model("nobody/nothing")).await.unwrap(), fixture.fake.directory());
    fixture.stop().await;
}

fn dot() -> InputFile {
    InputFile {
        name: Some("dot.png".to_owned()),
        media_type: "image/png".to_owned(),
        is_text: false,
        source: FileSource::Inline(b"\x89PNG\r\n\x1a\n".to_vec()),
        content: Some(ContentFacts { bytes: 3, sha256: [0; 32] }),
    }
}

fn picture() -> Input {
    Input::File(dot())
}

/// What a test changes in the fake before it starts.
type Change<'a> = &'a dyn Fn(&Fixture);

impl Fixture {
    /// The parts of a prompt with this input, as OpenCode receives them.
    async fn prompted(&self, session: &Session, input: Vec<Input>, options: PromptOptions) -> Vec<Value> {
        self.fake.queue(Turn::new().text("ok", 1));
        let before = self.fake.prompts().len();
        let request = TurnRequest {
            task: TaskId::parse("task-1").expect("an id"),
            session: session.clone(),
            prompt: longshore_model::PromptId::parse("0199").expect("an id"),
            input,
            options,
            order: None,
            is_adopted: false,
            resume: None,
            prompting: Prompting::default(),
            trace: None,
        };
        let mut turn = self.agent.start_turn(request).await.expect("the turn starts");
        while turn.events.recv().await.is_some() {}
        self.fake.prompts()[before].body["parts"].as_array().expect("a list").clone()
    }

    async fn session(&self) -> Session {
        let directory = self.fake.directory().to_owned();
        self.agent.open_session(NewSession { directory, title: None }).await.expect("a session")
    }

    fn looked_up(&self) -> Vec<String> {
        let asked = self.fake.log().into_iter().map(|request| request.path);
        asked.filter(|path| path.starts_with("/config") || path == "/agent").collect()
    }
}

/// The responding model is: the model that the caller names, else the agent's, else the session's last, else the configured
/// one, else the default of the first provider.
#[tokio::test]
async fn a_picture_is_attached_when_the_responding_model_accepts_pictures() {
    let plan_sees = |fixture: &Fixture| {
        fixture.fake.project(|project| project.agents[2].model = Some("vision".to_owned()));
    };
    let default_sees = |fixture: &Fixture| {
        fixture.fake.project(|project| project.agents[0].model = Some("vision".to_owned()));
    };
    let configured = |fixture: &Fixture| {
        fixture.fake.project(|project| project.model = Some("scripted/vision".to_owned()));
    };
    let unconfigured = |fixture: &Fixture| {
        fixture.fake.project(|project| {
            project.model = None;
            project.models.retain(|model| model.name != "vendor/deep");
        });
    };
    let last_used = |fixture: &Fixture| {
        let (id, directory) = ("ses_seen", fixture.fake.directory());
        let model = serde_json::json!({"id": "vision", "providerID": "scripted", "variant": "default"});
        fixture.fake.add_session_info(serde_json::json!({"id": id, "directory": directory, "model": model}));
    };
    let nothing = |_: &Fixture| {};
    let cases: [(&str, Change<'_>, PromptOptions, bool); 9] = [
        ("the caller's", &nothing, model("scripted/vision"), true),
        (
            "the caller's comes first",
            &plan_sees,
            PromptOptions { agent: Some("plan".to_owned()), ..model("scripted/scripted") },
            false,
        ),
        ("the agent's", &plan_sees, agent("plan"), true),
        ("another agent's", &plan_sees, PromptOptions::default(), false),
        ("the default agent's", &default_sees, PromptOptions::default(), true),
        ("the session's last", &last_used, PromptOptions::default(), true),
        ("the configured one", &configured, PromptOptions::default(), true),
        ("the provider's choice", &unconfigured, PromptOptions::default(), true),
        ("an unknown model", &nothing, model("nobody/nothing"), false),
    ];
    for (choice, change, options, is_attached) in cases {
        let fixture = Fixture::new();
        change(&fixture);
        let mut session = fixture.session().await;
        if choice == "the session's last" {
            session.id = SessionId::parse("ses_seen").unwrap();
        }
        let parts = fixture.prompted(&session, vec![picture()], options).await;
        assert_eq!(parts[0]["type"] == "file", is_attached, "{choice}: {parts:?}");
        fixture.stop().await;
    }
}

#[tokio::test]
async fn text_needs_no_lookup_and_pictures_need_one_for_many_turns() {
    let fixture = Fixture::new();
    let session = fixture.session().await;
    let text = Input::Text("hi".to_owned());
    let plain = Input::File(InputFile { media_type: "text/plain".to_owned(), is_text: true, ..dot() });
    fixture.prompted(&session, vec![text.clone(), plain], model("scripted/vision")).await;
    assert_eq!(fixture.looked_up(), <[&str; 0]>::default());
    for _ in 0..3 {
        let parts = fixture.prompted(&session, vec![text.clone(), picture()], model("scripted/vision")).await;
        assert_eq!(parts[1]["type"], "file");
    }
    assert_eq!(fixture.looked_up(), ["/config/providers"]);
    // The session's status is read last, so that no other client can use the idle session while the prompt is built.
    let asked: Vec<String> = fixture.fake.log().into_iter().map(|request| request.path).collect();
    let at = |path: &str| asked.iter().rposition(|asked| asked.ends_with(path));
    assert!(at("/session/status") > at("/config/providers"), "{asked:?}");
    let prompt = at("/prompt_async").unwrap();
    assert_eq!(asked[prompt - 1], "/session/status", "{asked:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_picture_is_described_when_opencode_does_not_report_what_its_models_accept() {
    let fixture = Fixture::new();
    fixture.fake.fault_always("GET", "/config/providers", Fault::Status(500));
    let session = fixture.session().await;
    let parts = fixture.prompted(&session, vec![picture()], model("scripted/vision")).await;
    assert_eq!(parts[0]["type"], "text");
    assert!(
        parts[0]["text"]
            .as_str()
            .unwrap()
            .contains("\nfilename: dot.png\nmediaType: image/png\nbyteSize: 3\n")
    );
    fixture.stop().await;
}
