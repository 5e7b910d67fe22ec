//! Tests of modes and models: which a turn gets, which are refused, and which callers see.

use longshore_model::{Choice, ModelName};

use super::*;
use crate::connection::Role;

fn offers() -> Value {
    json!({"sessionId": "s", "modes": {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "auto"}, {"id": "plan"}]},
        "models": {"currentModelId": "a", "availableModels": [{"modelId": "a"}, {"modelId": "p/b"}]}})
}

fn options(mode: Option<&str>, model: Option<ModelName>) -> PromptOptions {
    PromptOptions { mode: mode.map(str::to_owned), model, ..PromptOptions::default() }
}

impl Stage {
    /// Opens a session whose response is `answer`.
    async fn open_with(&mut self, answer: Value) -> Session {
        let directory = self.directory();
        let playing = async {
            self.peers[0].answer("initialize", loads()).await;
            self.peers[0].answer("session/new", answer).await;
        };
        let (opened, ()) =
            tokio::join!(self.agent.open_session(NewSession { directory, title: None }), playing);
        opened.unwrap()
    }

    /// Runs a turn. Before the prompt, the agent must get exactly these requests: each a method and the chosen value.
    async fn run_set_up(&mut self, session: &Session, options: PromptOptions, set_up: &[(&str, &str)]) {
        let request = TurnRequest { options, ..request(session, "hi") };
        let playing = async {
            let peer = &mut self.peers[0];
            for (method, word) in set_up {
                let params = peer.answer(method, json!({})).await["params"].clone();
                let chosen = ["modeId", "modelId", "value"].iter().find_map(|name| params[*name].as_str());
                assert_eq!(chosen, Some(*word), "{method}");
            }
            let prompt = peer.get().await;
            assert_eq!(prompt["method"], "session/prompt");
            peer.end(&prompt, "end_turn").await;
        };
        let (turn, ()) = tokio::join!(self.agent.start_turn(request), playing);
        assert_eq!(rest(&mut turn.unwrap()).await.1, completed());
    }

    async fn admit(&self, options: &PromptOptions) -> Result<Admitted> {
        let directory = self.directory();
        let request = Admission { directory: None, workspace: None, current: Some(&directory), options };
        self.agent.admit(request).await
    }
}

#[tokio::test]
async fn a_turn_has_the_mode_and_the_model_that_its_message_names_or_else_the_configured_ones() {
    let mut stage = stage_with(1, |config| {
        (config.mode, config.model) = (Some("auto".to_owned()), Some("a".to_owned()));
    });
    let session = stage.open_with(offers()).await;
    for (options, set_up) in [
        (options(None, None), &[("session/set_mode", "auto")][..]),
        (options(None, None), &[]),
        (
            options(Some("plan"), Some(ModelName::plain("p/b"))),
            &[("session/set_model", "p/b"), ("session/set_mode", "plan")],
        ),
        (options(Some("plan"), ModelName::parse("p/b")), &[]),
        // The choice applied to one message only.
        (options(None, None), &[("session/set_model", "a"), ("session/set_mode", "auto")]),
    ] {
        stage.run_set_up(&session, options, set_up).await;
    }
}

#[tokio::test]
async fn without_a_configuration_a_turn_goes_back_to_what_new_sessions_have() {
    let mut stage = stage(2);
    let session = stage.open_with(offers()).await;
    let plan = || options(Some("plan"), None);
    stage.run_set_up(&session, plan(), &[("session/set_mode", "plan")]).await;
    stage.run_set_up(&session, options(None, None), &[("session/set_mode", "ask")]).await;
    stage.run_set_up(&session, plan(), &[("session/set_mode", "plan")]).await;
    // The same holds if the agent remembers the choice of an earlier turn when it reopens the session.
    stage.die();
    while stage.agent.check().await.is_ok() {
        tokio::task::yield_now().await;
    }
    stage.wait_for_back().await;
    let mut loaded = offers();
    loaded["modes"]["currentModeId"] = "plan".into();
    let again = request(&session, "again");
    let playing = async {
        let peer = &mut stage.peers[0];
        peer.answer("initialize", loads()).await;
        peer.answer("session/load", loaded).await;
        assert_eq!(peer.answer("session/set_mode", json!({})).await["params"]["modeId"], "ask");
        let prompt = peer.get().await;
        peer.end(&prompt, "end_turn").await;
    };
    let (turn, ()) = tokio::join!(stage.agent.start_turn(again), playing);
    assert!(matches!(rest(&mut turn.unwrap()).await.1, Outcome::Completed { .. }));
}

#[tokio::test]
async fn an_unknown_mode_or_model_is_refused_with_the_list_once_a_session_was_opened() {
    let mut stage = stage(1);
    let unknown = [
        (
            options(Some("yolo"), None),
            "metadata.shared.mode",
            "no mode `yolo`. Choose one of: ask, auto, plan.",
        ),
        (
            options(None, ModelName::parse("p/c")),
            "metadata.shared.model",
            "no model `p/c`. Choose one of: a, p/b.",
        ),
        (options(None, Some(ModelName::plain("c"))), "metadata.shared.model", "no model `c`."),
    ];
    // Nothing is known yet, so the check is left to the turn.
    for (options, ..) in &unknown {
        stage.admit(options).await.unwrap();
    }
    let session = stage.open_with(offers()).await;
    for (options, field, words) in &unknown {
        let refused = stage.admit(options).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.violations()[0].field.as_str()),
            (ErrorKind::InvalidParams, *field)
        );
        assert!(refused.message().contains(words), "{refused}");
        // Another directory may have other modes.
        std::fs::create_dir_all(stage.root.path().join("below")).unwrap();
        let below = Admission { directory: Some("below"), workspace: None, current: None, options };
        stage.agent.admit(below).await.unwrap();
        let request = TurnRequest { options: options.clone(), ..request(&session, "hi") };
        let prompting = request.prompting.clone();
        let failed = stage.agent.start_turn(request).await.unwrap_err();
        assert_eq!((failed.kind(), prompting.has_begun()), (ErrorKind::InvalidParams, false));
    }
    for known in [options(Some("plan"), ModelName::parse("p/b")), options(None, ModelName::parse("x/a"))] {
        stage.admit(&known).await.unwrap();
    }
}

#[tokio::test]
async fn a_pinned_choice_is_not_for_callers() {
    let stage = stage_with(1, |config| config.pinned = vec![Role::Mode]);
    let refused = stage.admit(&options(Some("plan"), None)).await.unwrap_err();
    assert_eq!(refused.violations()[0].field, "metadata.shared.mode");
    assert!(refused.message().contains("does not let callers choose the mode"), "{refused}");
    stage.admit(&options(None, Some(ModelName::plain("a")))).await.unwrap();
}

#[tokio::test]
async fn an_agent_without_modes_takes_none() {
    let mut stage = stage(1);
    stage.open_with(json!({"sessionId": "s"})).await;
    let refused = stage.admit(&options(Some("plan"), None)).await.unwrap_err();
    assert!(refused.message().contains("does not let callers choose a mode"), "{refused}");
}

#[tokio::test]
async fn a_configured_mode_that_the_agent_lacks_is_an_error_that_lasts() {
    let mut stage = stage_with(1, |config| config.mode = Some("yolo".to_owned()));
    let session = stage.open_with(offers()).await;
    let refused = stage.agent.start_turn(request(&session, "hi")).await.unwrap_err();
    assert!(
        refused.is_permanent() && refused.message().contains("Choose one of: ask, auto, plan."),
        "{refused}"
    );
    assert_eq!(refused.kind(), ErrorKind::AgentUnavailable);
}

fn ids(choices: &[Choice]) -> Vec<&str> {
    choices.iter().map(|choice| choice.id.as_str()).collect()
}

/// The config options of Claude Agent, which omits one mode with one of its models.
fn claude_options(model: &str, offered: &[&str]) -> Value {
    let offered: Vec<_> = offered.iter().map(|id| json!({"value": id, "name": id.to_uppercase()})).collect();
    json!([{"id": "mode", "category": "mode", "currentValue": "default", "options": offered},
        {"id": "model", "category": "model", "currentValue": model, "options": [{"value": "opus"}, {"value": "haiku"}]},
        {"id": "effort", "name": "Effort", "category": "thought_level", "currentValue": "low", "options": [{"value": "low"}, {"value": "max"}]}])
}

#[tokio::test]
async fn what_the_agent_offers_follows_its_updates_and_changes_with_the_model() {
    let mut stage = stage(1);
    assert_eq!(stage.agent.session_choices().unwrap().known(), None);
    let modes = json!({"currentModeId": "default", "availableModes": [{"id": "auto", "description": "Judges."}, {"id": "default"}]});
    let answer = json!({"sessionId": "s", "modes": modes, "configOptions": claude_options("opus", &["auto", "default"])});
    let session = stage.open_with(answer).await;
    let known = stage.agent.session_choices().unwrap().known().unwrap();
    assert_eq!(
        (ids(&known.modes.choices), known.modes.default.as_deref()),
        (vec!["auto", "default"], Some("default"))
    );
    assert_eq!(known.modes.choices[0].description.as_deref(), Some("Judges."));
    assert_eq!(
        (ids(&known.models.choices), known.models.default.as_deref()),
        (vec!["opus", "haiku"], Some("opus"))
    );
    assert_eq!(known.options.len(), 1, "the options for the mode and the model are not repeated");
    assert_eq!(
        (known.options[0].option.name.as_str(), ids(&known.options[0].choices)),
        ("Effort", vec!["low", "max"])
    );

    let request =
        TurnRequest { options: options(None, Some(ModelName::plain("haiku"))), ..request(&session, "hi") };
    let playing = async {
        let peer = &mut stage.peers[0];
        let set = peer.answer(
            "session/set_config_option",
            json!({"configOptions": claude_options("haiku", &["default"])}),
        );
        assert_eq!(set.await["params"]["value"], "haiku");
        let commands = json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "init"}, {"name": ""}, {}]});
        peer.update("s", commands).await;
        let prompt = peer.get().await;
        peer.end(&prompt, "end_turn").await;
    };
    let (turn, ()) = tokio::join!(stage.agent.start_turn(request), playing);
    rest(&mut turn.unwrap()).await;
    let known = stage.agent.session_choices().unwrap().known().unwrap();
    assert_eq!((ids(&known.modes.choices), ids(&known.commands)), (vec!["default"], vec!["init"]));
    assert_eq!(known.models.default.as_deref(), Some("opus"), "the choice was for one message");
    let haiku = Some(ModelName::plain("haiku"));
    let refused = stage.admit(&options(Some("auto"), haiku)).await.unwrap_err();
    assert!(refused.message().contains("no mode `auto`"), "{refused}");
    // The default model may have the mode again.
    stage.admit(&options(Some("auto"), None)).await.unwrap();
}

#[tokio::test]
async fn lists_that_are_too_long_are_cut() {
    let mut stage = stage(1);
    let many: Vec<_> = (0..2000).map(|number| json!({"id": format!("mode-{number}")})).collect();
    let large: Vec<_> =
        (0..300).map(|number| json!({"modelId": format!("{number}"), "name": "x".repeat(1024)})).collect();
    let answer = json!({"sessionId": "s", "modes": {"currentModeId": "mode-0", "availableModes": many},
        "models": {"currentModelId": "0", "availableModels": large}});
    stage.open_with(answer).await;
    let facts = stage.agent.facts().unwrap();
    assert_eq!((facts.choices(Role::Mode).len(), facts.choices(Role::Model).len()), (512, 124));
}

fn config(pairs: &[(&str, &str)]) -> PromptOptions {
    let config = pairs.iter().map(|(id, value)| ((*id).to_owned(), (*value).to_owned())).collect();
    PromptOptions { config, ..PromptOptions::default() }
}

#[tokio::test]
async fn a_message_chooses_options_and_the_next_one_has_the_agents_own_again() {
    let mut stage = stage(1);
    let answer = json!({"sessionId": "s", "configOptions": claude_options("opus", &["default"])});
    let session = stage.open_with(answer).await;
    let known = stage.agent.session_choices().unwrap().known().unwrap();
    assert_eq!(known.options[0].default.as_deref(), Some("low"));
    let set = "session/set_config_option";
    for (options, set_up) in [
        (config(&[]), &[][..]),
        (config(&[("effort", "low")]), &[]),
        (config(&[("effort", "max")]), &[(set, "max")]),
        (config(&[("effort", "max")]), &[]),
        (config(&[]), &[(set, "low")]),
        (config(&[]), &[]),
    ] {
        stage.run_set_up(&session, options, set_up).await;
    }
    let known = stage.agent.session_choices().unwrap().known().unwrap();
    assert_eq!(known.options[0].default.as_deref(), Some("low"), "the choice was for one message");
}

#[tokio::test]
async fn an_option_that_no_message_chose_stays_as_the_agent_set_it() {
    let mut stage = stage(1);
    let answer = json!({"sessionId": "s", "configOptions": claude_options("opus", &["default"])});
    let session = stage.open_with(answer).await;
    let mut changed = claude_options("opus", &["default"]);
    changed[2]["currentValue"] = "max".into();
    let update = json!({"sessionUpdate": "config_option_update", "configOptions": changed});
    stage.peers[0].update("s", update).await;
    stage.run_set_up(&session, config(&[]), &[]).await;
    stage.run_set_up(&session, config(&[]), &[]).await;
}

#[tokio::test]
async fn an_unknown_option_is_refused_with_the_list_and_a_pinned_one_without() {
    let mut stage = stage(1);
    let unknown = [
        (config(&[("tone", "dry")]), "tone", "no option `tone`. Choose one of: effort."),
        (config(&[("effort", "high")]), "effort", "no value `high`. Choose one of: low, max."),
        (config(&[("mode", "auto")]), "mode", "A message chooses the mode by metadata.shared.mode."),
    ];
    // Nothing is known yet, so the check is left to the turn.
    for (options, ..) in &unknown {
        stage.admit(options).await.unwrap();
    }
    let answer = json!({"sessionId": "s", "configOptions": claude_options("opus", &["default"])});
    let session = stage.open_with(answer).await;
    for (options, id, words) in &unknown {
        let refused = stage.admit(options).await.unwrap_err();
        assert_eq!(refused.violations()[0].field, format!("metadata.shared.config.{id}"));
        assert!(refused.message().contains(words), "{refused}");
        let request = TurnRequest { options: options.clone(), ..request(&session, "hi") };
        let failed = stage.agent.start_turn(request).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::InvalidParams);
    }
    // With another model, the agent may offer other options.
    let other = PromptOptions { model: Some(ModelName::plain("haiku")), ..config(&[("tone", "dry")]) };
    stage.admit(&other).await.unwrap();
    let pinned = stage_with(0, |config| config.pins_config = true);
    let refused = pinned.admit(&config(&[("effort", "max")])).await.unwrap_err();
    assert!(refused.message().contains("does not let callers choose options"), "{refused}");
}

/// The messages of Claude Agent when its option `effort` was set to `max` and back.
const RECORDED: &str = include_str!("../../../tests/recordings/claude-options.jsonl");

#[tokio::test]
async fn the_recorded_options_of_claude_agent_are_offered_chosen_and_set_back() {
    let recorded: Vec<Value> = RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = |at: usize| recorded[at]["message"]["result"].clone();
    let mut stage = stage(1);
    let mut opened = answer(1);
    opened["sessionId"] = "s".into();
    let session = stage.open_with(opened).await;
    let known = stage.agent.session_choices().unwrap().known().unwrap();
    let [effort] = known.options.as_slice() else { panic!("{:?}", known.options) };
    assert_eq!((effort.option.id.as_str(), effort.default.as_deref()), ("effort", Some("default")));
    let refused = stage.admit(&config(&[("effort", "none")])).await.unwrap_err();
    assert!(refused.message().contains("Choose one of: default, low, "), "{refused}");
    for (options, set, expected) in [(config(&[("effort", "max")]), 2, "max"), (config(&[]), 4, "default")] {
        let request = TurnRequest { options, ..request(&session, "hi") };
        let playing = async {
            let peer = &mut stage.peers[0];
            let asked = peer.answer("session/set_config_option", answer(set + 1)).await["params"].clone();
            let recorded = &recorded[set]["message"]["params"];
            assert_eq!((&asked["configId"], &asked["value"]), (&recorded["configId"], &recorded["value"]));
            let prompt = peer.get().await;
            assert_eq!(prompt["method"], "session/prompt");
            peer.end(&prompt, "end_turn").await;
        };
        let (turn, ()) = tokio::join!(stage.agent.start_turn(request), playing);
        rest(&mut turn.unwrap()).await;
        let session = stage.agent.facts().unwrap().session.unwrap();
        let current = session.config_options.iter().find(|option| option.id == "effort").unwrap();
        assert_eq!(current.current_value, expected);
    }
}

#[tokio::test]
async fn an_option_of_a_model_is_set_back_when_the_model_is_used_again() {
    let mut stage = stage(1);
    let of = |model: &str, effort: &str| {
        let mut all = claude_options(model, &["default"]);
        all[2]["currentValue"] = effort.into();
        if model == "haiku" {
            all.as_array_mut().unwrap().pop();
        }
        all
    };
    let session = stage.open_with(json!({"sessionId": "s", "configOptions": of("haiku", "")})).await;
    let opus = |config: PromptOptions| PromptOptions { model: Some(ModelName::plain("opus")), ..config };
    for (options, set_up) in [
        (opus(config(&[("effort", "max")])), &[("opus", of("opus", "low")), ("max", of("opus", "max"))][..]),
        (opus(config(&[])), &[("low", of("opus", "low"))]),
        (opus(config(&[("effort", "max")])), &[("max", of("opus", "max"))]),
        // Without that model there is no option to reset.
        (config(&[]), &[("haiku", of("haiku", ""))]),
        (opus(config(&[])), &[("opus", of("opus", "max")), ("low", of("opus", "low"))]),
        (opus(config(&[])), &[]),
    ] {
        let request = TurnRequest { options, ..request(&session, "hi") };
        let playing = async {
            let peer = &mut stage.peers[0];
            for (value, answer) in set_up {
                let set = peer.answer("session/set_config_option", json!({"configOptions": answer})).await;
                assert_eq!(set["params"]["value"], *value);
            }
            let prompt = peer.get().await;
            assert_eq!(prompt["method"], "session/prompt", "{prompt}");
            peer.end(&prompt, "end_turn").await;
        };
        let (turn, ()) = tokio::join!(stage.agent.start_turn(request), playing);
        rest(&mut turn.unwrap()).await;
    }
}

#[tokio::test]
async fn a_session_that_is_opened_again_and_a_copy_do_not_keep_the_choice_of_an_earlier_message() {
    let mut stage = stage(2);
    let answer = json!({"sessionId": "s", "configOptions": claude_options("opus", &["default"])});
    let session = stage.open_with(answer).await;
    let set = "session/set_config_option";
    stage.run_set_up(&session, config(&[("effort", "max")]), &[(set, "max")]).await;
    let mut kept = claude_options("opus", &["default"]);
    kept[2]["currentValue"] = "max".into();
    stage.die();
    while stage.agent.check().await.is_ok() {
        tokio::task::yield_now().await;
    }
    stage.wait_for_back().await;
    let about = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true, "sessionCapabilities": {"fork": {}}}});
    let (facts, _) = tokio::join!(stage.agent.start(), stage.peers[0].answer("initialize", about));
    facts.unwrap();
    let directory = stage.directory();
    let fork = longshore_model::ControlCommand::Fork { session: session.id.clone(), before: None };
    let control: &dyn longshore_engine::port::Control = &*stage.agent;
    let (copied, _) = tokio::join!(
        control.run_command(&directory, Some(&session), &fork),
        stage.peers[0].answer("session/fork", json!({"sessionId": "copy", "configOptions": kept}))
    );
    copied.unwrap();
    let copy = Session { id: SessionId::parse("copy").unwrap(), directory };
    stage.run_set_up(&copy, config(&[]), &[(set, "low")]).await;
    let request = request(&session, "hi");
    let playing = async {
        let peer = &mut stage.peers[0];
        peer.answer("session/load", json!({"configOptions": kept})).await;
        assert_eq!(peer.answer(set, json!({})).await["params"]["value"], "low");
        let prompt = peer.get().await;
        peer.end(&prompt, "end_turn").await;
    };
    let (turn, ()) = tokio::join!(stage.agent.start_turn(request), playing);
    rest(&mut turn.unwrap()).await;
}

#[tokio::test]
async fn no_option_whose_category_or_id_is_the_mode_or_the_model_is_an_other_one() {
    let mut stage = stage_with(1, |config| config.pinned = vec![Role::Mode, Role::Model]);
    let choice = json!([{"value": "yolo"}, {"value": "ask"}]);
    let option = |id: &str, category: &str| json!({"id": id, "category": category, "currentValue": "ask", "options": choice});
    let all = [
        option("first", "mode"),
        option("second", "mode"),
        option("mode", "style"),
        option("big", "model"),
        option("small", "model"),
        option("model", "style"),
        option("tone", "style"),
    ];
    stage.open_with(json!({"sessionId": "s", "configOptions": all})).await;
    let offered = stage.agent.session_choices().unwrap().known().unwrap().options;
    let offered: Vec<_> = offered.iter().map(|option| option.option.id.as_str()).collect();
    assert_eq!(offered, ["tone"]);
    stage.admit(&config(&[("tone", "yolo")])).await.unwrap();
    for id in ["first", "second", "mode", "big", "small", "model"] {
        let refused = stage.admit(&config(&[(id, "yolo")])).await.unwrap_err();
        assert!(refused.message().contains("A message chooses the mo"), "{id}: {refused}");
    }
}
