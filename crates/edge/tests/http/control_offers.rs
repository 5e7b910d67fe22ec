//! The extended card lists the agent's agents and commands, and changes with them.

use std::time::Duration;

use longshore_model::{
    Choice, ChoiceList, Choices, Error, OfferedAgent, OfferedCommand, Offers, SessionOption,
};
use serde_json::{Value, json};

use crate::control::agent;
use crate::documents::{EXTENDED, get};
use crate::support::{ADA, Answer, Gateway};

fn offers(name: &str) -> Offers {
    let agent = OfferedAgent {
        name: format!("{name}-agent"),
        mode: Some("primary".to_owned()),
        description: Some("Looks closely.".to_owned()),
    };
    let command =
        OfferedCommand { name: format!("{name}-command"), description: None, agent: None, is_subtask: false };
    Offers { agents: vec![agent], commands: vec![command] }
}

fn names(card: &Answer) -> Vec<&'static str> {
    let text = card.json().to_string();
    ["first-agent", "first-command", "second-agent", "second-command"]
        .into_iter()
        .filter(|name| text.contains(name))
        .collect()
}

/// Advances the gateway's clock.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn the_extended_card_follows_what_the_agent_offers() {
    let control = agent();
    control.offer_next(Ok(offers("first")));
    let gateway = Gateway::controlled(&control, |_| {}).await;
    let paths = [EXTENDED, "/agent/authenticatedExtendedCard", "/v1/card", "/a2a/1.0/extendedAgentCard"];
    let mut tags = Vec::new();
    for path in paths {
        let card = get(&gateway, path, ADA, &[]).await;
        assert_eq!(names(&card), ["first-agent", "first-command"], "{path}");
        tags.push(card.header("etag").to_owned());
    }
    // A fresh answer is reused without asking the agent.
    let same = get(&gateway, EXTENDED, ADA, &[("if-none-match", &tags[0])]).await;
    assert_eq!(same.status.as_u16(), 304);

    control.offer_next(Ok(offers("second")));
    pass(Duration::from_mins(2)).await;
    for (path, tag) in paths.into_iter().zip(&tags) {
        let card = get(&gateway, path, ADA, &[("if-none-match", tag)]).await;
        assert_eq!(card.status.as_u16(), 200, "{path}");
        assert_eq!(names(&card), ["second-agent", "second-command"], "{path}");
        assert_ne!(card.header("etag"), tag, "{path}");
    }
    let by_method = gateway.rpc("GetExtendedAgentCard", &json!({})).send().await;
    assert_eq!(names(&by_method), ["second-agent", "second-command"]);

    // If the agent does not answer, the card keeps its last offers.
    control.offer_next(Err(Error::internal("away")));
    pass(Duration::from_mins(2)).await;
    assert_eq!(names(&get(&gateway, EXTENDED, ADA, &[]).await), ["second-agent", "second-command"]);
    // The public card never lists them.
    let public = get(&gateway, crate::documents::CARD, "", &[]).await;
    assert_eq!(names(&public), [""; 0]);
    gateway.stop().await;
}

fn choice(id: &str) -> Choice {
    Choice { id: id.to_owned(), name: id.to_uppercase(), description: None }
}

#[tokio::test]
async fn the_extended_card_lists_the_modes_models_and_commands_that_the_agent_has_told() {
    let gateway = Gateway::echoing().await;
    let paths = [EXTENDED, "/agent/authenticatedExtendedCard", "/v1/card", "/a2a/1.0/extendedAgentCard"];
    let selection = |card: &Value| {
        let extensions = card["capabilities"]["extensions"].as_array().unwrap();
        let is_it = |entry: &&Value| entry["uri"].as_str().unwrap().contains("model-selection");
        extensions.iter().find(is_it).unwrap()["params"].clone()
    };
    for path in paths {
        let card = get(&gateway, path, ADA, &[]).await.json();
        assert_eq!(selection(&card)["modes"], Value::Null, "{path}: nothing is known yet");
    }
    let plan = Choice { description: Some("x".repeat(2000)), ..choice("plan") };
    let choices = Choices {
        modes: ChoiceList { default: Some("build".to_owned()), choices: vec![choice("build"), plan] },
        models: ChoiceList::default(),
        options: vec![SessionOption {
            option: choice("effort"),
            default: None,
            choices: vec![choice("low")],
        }],
        commands: vec![
            Choice { description: Some("Reviews.".to_owned()), ..choice("review") },
            choice("init"),
        ],
    };
    *gateway.agent.choices.lock().unwrap() = Some(choices);
    for path in paths {
        let card = get(&gateway, path, ADA, &[]).await.json();
        let params = selection(&card);
        assert_eq!(params["modes"]["default"], "build", "{path}");
        let modes = params["modes"]["choices"].as_array().unwrap();
        assert_eq!(modes[0], json!({"id": "build", "name": "BUILD"}));
        assert!(modes[1]["description"].as_str().unwrap().len() < 1100, "descriptions are cut");
        let effort = json!({"id": "effort", "name": "EFFORT", "choices": [{"id": "low", "name": "LOW"}]});
        assert_eq!((&params["models"], &params["config_options"]), (&Value::Null, &json!([effort])));
        let skills = card["skills"].as_array().unwrap();
        let commands = skills.iter().filter(|skill| skill["id"].as_str().unwrap().starts_with("command."));
        let told: Vec<_> = commands.map(|skill| [&skill["name"], &skill["description"]]).collect();
        assert_eq!(told, [["/review", "Reviews."], ["/init", "The command /init of the agent."]]);
    }
    let public = get(&gateway, crate::documents::CARD, "", &[]).await.json().to_string();
    assert!(!public.contains("/review") && !public.contains("BUILD"), "{public}");
    gateway.stop().await;
}
