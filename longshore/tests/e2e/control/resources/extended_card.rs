//! The agents and commands of OpenCode appear in the extended card, in both versions.

use longshore_testkit::raw::Answer;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::{card, root};
use crate::control::caller::CANARY;
use crate::control::fixture::Fixture;

pub(super) async fn are_in_the_extended_card(fixture: &mut Fixture) {
    let before = cards(fixture).await;
    for (version, card) in &before {
        let agents = offered(card, "agents");
        let boatswain = agents.iter().find(|agent| agent["name"] == "boatswain");
        assert_eq!(
            boatswain,
            Some(&json!({"name": "boatswain", "mode": "all", "description": "Keeps the deck"})),
            "{version:?}: {agents:#?}"
        );
        for agent in ["build", "plan", "general", "explore"] {
            assert!(agents.iter().any(|found| found["name"] == agent), "{version:?}: {agents:#?}");
        }
        // OpenCode hides some agents.
        assert!(!agents.iter().any(|agent| agent["name"] == "title"), "{version:?}: {agents:#?}");
        let commands = offered(card, "commands");
        for (name, description) in [("review", "Looks at something"), ("whisper", "Says it low")] {
            let command = commands.iter().find(|command| command["name"] == name);
            let command = command.unwrap_or_else(|| panic!("{version:?}: {name} is not in {commands:#?}"));
            assert_eq!(command["description"], description, "{version:?}");
        }
        let survey = commands.iter().find(|command| command["name"] == "survey").expect("a command");
        assert_eq!((&survey["agent"], &survey["subtask"]), (&json!("general"), &json!(true)), "{survey:#}");
        for skill in ["opencode.agent.boatswain", "opencode.command.whisper"] {
            assert!(has_skill(card, skill), "{version:?}: {skill} is not in the card");
        }
        assert!(!has_skill(card, "opencode.command.sail"), "{version:?}");
        for secret in [CANARY, "none-needed"] {
            assert!(!card.body.to_string().contains(secret), "{version:?}: the card contains {secret}");
        }
    }

    // A command of the project. OpenCode reads it when it loads the project again.
    let folder = root(fixture).join(".opencode").join("command");
    std::fs::create_dir_all(&folder).expect("a directory can be made");
    let text = format!("---\ndescription: Leaves the harbour\n---\n{CANARY}\n");
    std::fs::write(folder.join("sail.md"), text).expect("a file can be written");
    fixture.harness.opencode.post("/instance/dispose").await;
    // OpenCode has loaded the project when it answers. The gateway waits ten seconds for that; a busy machine needs longer.
    fixture.harness.opencode.get("/command").await;
    // The gateway reads the commands at its start, and then only from time to time.
    fixture.harness.gateway.kill();
    fixture.harness.restart().await;
    for ((version, old), (_, new)) in before.iter().zip(cards(fixture).await) {
        let commands = offered(&new, "commands");
        let sail = json!({"name": "sail", "description": "Leaves the harbour"});
        let found = commands.iter().find(|command| command["name"] == "sail");
        let found = found.unwrap_or_else(|| panic!("{version:?}: it is not in {commands:#?}"));
        assert_eq!((&found["name"], &found["description"]), (&sail["name"], &sail["description"]));
        assert!(has_skill(&new, "opencode.command.sail"), "{version:?}");
        assert!(
            !new.body.to_string().contains(CANARY),
            "{version:?}: the card contains the text of a command"
        );
        let tags = [old.header("etag"), new.header("etag")];
        assert!(tags[0].is_some() && tags[0] != tags[1], "{version:?}: {tags:?}");
    }
}

async fn cards(fixture: &Fixture) -> [(ProtocolVersion, Answer); 2] {
    [
        (ProtocolVersion::V1, card(fixture, ProtocolVersion::V1).await),
        (ProtocolVersion::V03, card(fixture, ProtocolVersion::V03).await),
    ]
}

/// The list of this name in the parameters of the session extension.
fn offered(card: &Answer, name: &str) -> Vec<Value> {
    let extensions = card.body["capabilities"]["extensions"].as_array().expect("a card has extensions");
    let found = extensions.iter().find_map(|extension| extension["params"][name].as_array());
    found.unwrap_or_else(|| panic!("no {name} in {extensions:#?}")).clone()
}

fn has_skill(card: &Answer, id: &str) -> bool {
    card.body["skills"].as_array().is_some_and(|skills| skills.iter().any(|skill| skill["id"] == id))
}
