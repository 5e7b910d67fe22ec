//! The agents and commands of OpenCode, in the extended card.

use longshore_testkit::raw::Answer;
use serde_json::{Value, json};

use super::{card, root};
use crate::control::caller::{CANARY, ProtocolVersion};
use crate::control::fixture::Fixture;

pub(super) async fn are_in_the_extended_card(fixture: &mut Fixture) {
    let before = cards(fixture).await;
    for (line, card) in &before {
        let agents = offered(card, "agents");
        let boatswain = agents.iter().find(|agent| agent["name"] == "boatswain");
        assert_eq!(
            boatswain,
            Some(&json!({"name": "boatswain", "mode": "all", "description": "Keeps the deck"})),
            "{line:?}: {agents:#?}"
        );
        for agent in ["build", "plan", "general", "explore"] {
            assert!(agents.iter().any(|found| found["name"] == agent), "{line:?}: {agents:#?}");
        }
        // OpenCode keeps some for itself.
        assert!(!agents.iter().any(|agent| agent["name"] == "title"), "{line:?}: {agents:#?}");
        let commands = offered(card, "commands");
        for (name, description) in [("review", "Looks at something"), ("whisper", "Says it low")] {
            let command = commands.iter().find(|command| command["name"] == name);
            let command = command.unwrap_or_else(|| panic!("{line:?}: {name} is not in {commands:#?}"));
            assert_eq!(command["description"], description, "{line:?}");
        }
        let survey = commands.iter().find(|command| command["name"] == "survey").expect("a command");
        assert_eq!((&survey["agent"], &survey["subtask"]), (&json!("general"), &json!(true)), "{survey:#}");
        for skill in ["opencode.agent.boatswain", "opencode.command.whisper"] {
            assert!(has_skill(card, skill), "{line:?}: {skill} is not in the card");
        }
        assert!(!has_skill(card, "opencode.command.sail"), "{line:?}");
        for secret in [CANARY, "none-needed"] {
            assert!(!card.body.to_string().contains(secret), "{line:?}: the card tells {secret}");
        }
    }

    // One that the project brings: OpenCode reads it when it loads the project again.
    let folder = root(fixture).join(".opencode").join("command");
    std::fs::create_dir_all(&folder).expect("a directory can be made");
    let text = format!("---\ndescription: Leaves the harbour\n---\n{CANARY}\n");
    std::fs::write(folder.join("sail.md"), text).expect("a file can be written");
    fixture.harness.opencode.post("/instance/dispose").await;
    // The gateway asks for them at its start, and then now and then.
    fixture.harness.gateway.kill();
    fixture.harness.restart().await;
    for ((line, old), (_, new)) in before.iter().zip(cards(fixture).await) {
        let commands = offered(&new, "commands");
        let sail = json!({"name": "sail", "description": "Leaves the harbour"});
        let found = commands.iter().find(|command| command["name"] == "sail");
        let found = found.unwrap_or_else(|| panic!("{line:?}: it is not in {commands:#?}"));
        assert_eq!((&found["name"], &found["description"]), (&sail["name"], &sail["description"]));
        assert!(has_skill(&new, "opencode.command.sail"), "{line:?}");
        assert!(!new.body.to_string().contains(CANARY), "{line:?}: the card tells what a command says");
        let tags = [old.header("etag"), new.header("etag")];
        assert!(tags[0].is_some() && tags[0] != tags[1], "{line:?}: {tags:?}");
    }
}

async fn cards(fixture: &Fixture) -> [(ProtocolVersion, Answer); 2] {
    [
        (ProtocolVersion::V1, card(fixture, ProtocolVersion::V1).await),
        (ProtocolVersion::V03, card(fixture, ProtocolVersion::V03).await),
    ]
}

/// What the extension for sessions offers under this name.
fn offered(card: &Answer, name: &str) -> Vec<Value> {
    let extensions = card.body["capabilities"]["extensions"].as_array().expect("a card has extensions");
    let found = extensions.iter().find_map(|extension| extension["params"][name].as_array());
    found.unwrap_or_else(|| panic!("no {name} in {extensions:#?}")).clone()
}

fn has_skill(card: &Answer, id: &str) -> bool {
    card.body["skills"].as_array().is_some_and(|skills| skills.iter().any(|skill| skill["id"] == id))
}
