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
async fn what_opencode_has_is_admitted_and_what_it_has_not_is_refused_with_what_there_is() {
    let bench = Bench::new();
    for name in ["scripted/scripted", "scripted/vendor/deep"] {
        bench.with_options(&model(name)).await.unwrap();
    }
    bench.with_options(&variant("high", model("scripted/scripted"))).await.unwrap();
    // OpenCode lists no variants for it, and none is known of the model that will answer.
    bench.with_options(&variant("high", model("scripted/vision"))).await.unwrap();
    bench.with_options(&variant("high", PromptOptions::default())).await.unwrap();
    for name in ["build", "plan", "explore", "title"] {
        bench.with_options(&agent(name)).await.unwrap();
    }
    let mut seen = 0;
    assert_eq!(bench.asked(&mut seen), ["/config/providers", "/agent"], "each once for all");
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
            agent("nobody"),
            ("metadata.opencode.agent", "OpenCode has no agent of this name; there is: build, plan."),
        ),
    ];
    for (options, expected) in cases {
        for _ in 0..2 {
            let (field, said) = refusal(&bench, bench.with_options(&options).await);
            assert_eq!((field.as_str(), said.as_str()), expected);
        }
    }
    assert_eq!(bench.asked(&mut seen), <[&str; 0]>::default(), "the catalogue was just read");
    bench.stop().await;
}

#[tokio::test]
async fn a_refused_directory_comes_before_the_model() {
    let bench = Bench::new();
    let refused = bench.admit(Some("/etc"), None, &model("nobody/nothing")).await;
    assert_eq!(refusal(&bench, refused).0, "metadata.opencode.directory");
    assert_eq!(bench.asked(&mut 0), ["/experimental/workspace"]);
    bench.stop().await;
}

#[tokio::test]
async fn a_long_list_is_cut() {
    let bench = Bench::new();
    bench.fake.project(|project| {
        let one = project.models[0].clone();
        project.models =
            (0..30).map(|number| Model { name: format!("m{number:02}"), ..one.clone() }).collect();
    });
    let (_, said) = refusal(&bench, bench.with_options(&model("scripted/none")).await);
    let expected = "OpenCode's provider 'scripted' has no model of this name; there is: m00, m01, m02, m03, m04 and 25 more.";
    assert_eq!(said, expected);
    bench.stop().await;
}

/// A directory can have a configuration of its own.
#[tokio::test]
async fn models_are_those_of_the_directory() {
    let bench = Bench::new();
    make(&bench.inside("in"));
    bench.admit(Some("in"), None, &model("scripted/vision")).await.unwrap();
    bench.with_options(&model("scripted/vision")).await.unwrap();
    let asked: Vec<String> = bench.fake.log().into_iter().map(|request| request.directory).collect();
    assert_eq!(asked, [bench.inside("in"), bench.fake.directory().to_owned()]);
    bench.stop().await;
}

#[tokio::test]
async fn a_variant_is_one_of_the_gateways_own_model_too() {
    let bench = Bench::with(true, model("scripted/scripted"));
    bench.with_options(&variant("low", PromptOptions::default())).await.unwrap();
    let refused = bench.with_options(&variant("huge", PromptOptions::default())).await;
    assert_eq!(refusal(&bench, refused).0, "metadata.opencode.variant");
    bench.stop().await;
    // What the operator configured is not the caller's fault.
    let bench = Bench::with(true, model("nobody/nothing"));
    bench.with_options(&variant("huge", PromptOptions::default())).await.unwrap();
    bench.stop().await;
}

#[tokio::test]
async fn an_opencode_that_does_not_answer_refuses_nothing() {
    for fault in [Fault::Status(500), Fault::Html, Fault::CutBefore, Fault::Body("7"), Fault::Status(401)] {
        let bench = Bench::new();
        bench.fake.fault_always("GET", "", fault.clone());
        for _ in 0..3 {
            bench.with_options(&model("nobody/nothing")).await.unwrap();
            bench.with_options(&agent("nobody")).await.unwrap();
        }
        bench.stop().await;
    }
    let bench = Bench::new();
    bench.fake.kill().await;
    assert_eq!(bench.with_options(&model("nobody/nothing")).await.unwrap(), bench.fake.directory());
    bench.stop().await;
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

/// What a test changes of the fake before it begins.
type Change<'a> = &'a dyn Fn(&Bench);

impl Bench {
    /// The parts of a prompt with this input, as OpenCode gets them.
    async fn prompted(&self, session: &Session, input: Vec<Input>, options: PromptOptions) -> Vec<Value> {
        self.fake.queue(Turn::new().text("ok", 1));
        let before = self.fake.prompts().len();
        let request = TurnRequest {
            task: TaskId::parse("task-1").expect("an id"),
            session: session.clone(),
            prompt: self.agent.new_prompt(),
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
        self.agent.open_session(NewSession { directory }).await.expect("a session")
    }

    fn looked_up(&self) -> Vec<String> {
        let asked = self.fake.log().into_iter().map(|request| request.path);
        asked.filter(|path| path.starts_with("/config") || path == "/agent").collect()
    }
}

/// Who answers: the model that the caller names, else the agent's, else the session's last, else the configured one, else
/// the first provider's own choice.
#[tokio::test]
async fn a_picture_goes_along_when_the_model_that_answers_takes_pictures() {
    let plan_sees =
        |bench: &Bench| bench.fake.project(|project| project.agents[2].model = Some("vision".to_owned()));
    let default_sees =
        |bench: &Bench| bench.fake.project(|project| project.agents[0].model = Some("vision".to_owned()));
    let configured =
        |bench: &Bench| bench.fake.project(|project| project.model = Some("scripted/vision".to_owned()));
    let unconfigured = |bench: &Bench| {
        bench.fake.project(|project| {
            project.model = None;
            project.models.retain(|model| model.name != "vendor/deep");
        });
    };
    let last_used = |bench: &Bench| {
        let (id, directory) = ("ses_seen", bench.fake.directory());
        let model = serde_json::json!({"id": "vision", "providerID": "scripted", "variant": "default"});
        bench.fake.add_session_like(serde_json::json!({"id": id, "directory": directory, "model": model}));
    };
    let nothing = |_: &Bench| {};
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
        ("one that is not known", &nothing, model("nobody/nothing"), false),
    ];
    for (who, change, options, goes) in cases {
        let bench = Bench::new();
        change(&bench);
        let mut session = bench.session().await;
        if who == "the session's last" {
            session.id = SessionId::parse("ses_seen").unwrap();
        }
        let parts = bench.prompted(&session, vec![picture()], options).await;
        assert_eq!(parts[0]["type"] == "file", goes, "{who}: {parts:?}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn text_needs_no_look_up_and_pictures_need_one_for_many_turns() {
    let bench = Bench::new();
    let session = bench.session().await;
    let text = Input::Text("hi".to_owned());
    let plain = Input::File(InputFile { media_type: "text/plain".to_owned(), is_text: true, ..dot() });
    bench.prompted(&session, vec![text.clone(), plain], model("scripted/vision")).await;
    assert_eq!(bench.looked_up(), <[&str; 0]>::default());
    for _ in 0..3 {
        let parts = bench.prompted(&session, vec![text.clone(), picture()], model("scripted/vision")).await;
        assert_eq!(parts[1]["type"], "file");
    }
    assert_eq!(bench.looked_up(), ["/config/providers"]);
    // An idle session is not left to others while its prompt is made.
    let asked: Vec<String> = bench.fake.log().into_iter().map(|request| request.path).collect();
    let at = |path: &str| asked.iter().rposition(|asked| asked.ends_with(path));
    assert!(at("/session/status") > at("/config/providers"), "{asked:?}");
    let prompt = at("/prompt_async").unwrap();
    assert_eq!(asked[prompt - 1], "/session/status", "{asked:?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_picture_for_an_opencode_that_does_not_say_what_its_models_take_is_told_of() {
    let bench = Bench::new();
    bench.fake.fault_always("GET", "/config/providers", Fault::Status(500));
    let session = bench.session().await;
    let parts = bench.prompted(&session, vec![picture()], model("scripted/vision")).await;
    assert_eq!(parts[0]["type"], "text");
    assert!(
        parts[0]["text"]
            .as_str()
            .unwrap()
            .contains("\nfilename: dot.png\nmediaType: image/png\nbyteSize: 3\n")
    );
    bench.stop().await;
}
