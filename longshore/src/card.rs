//! The agent card, true to what runs.

use longshore_model::card::{AuthScheme, Binding, Card, INPUT_MODES, Interface, OUTPUT_MODES, Skill};

use crate::config::plan::CardTexts;

/// The card of a gateway that clients reach at `public_url`.
pub(crate) fn card(texts: &CardTexts, public_url: &str, schemes: Vec<AuthScheme>) -> Card {
    let url = public_url.trim_end_matches('/');
    let interface = |binding| Interface { url: url.to_owned(), binding };
    let description = match &texts.project {
        Some(project) => format!("{} Deployment project: {project}.", texts.description),
        None => texts.description.clone(),
    };
    Card {
        name: texts.title.clone(),
        description,
        version: texts.version.clone(),
        documentation_url: texts.documentation_url.as_ref().map(ToString::to_string),
        interfaces: vec![interface(Binding::JsonRpc), interface(Binding::Rest)],
        streaming: true,
        extended: false,
        extensions: longshore_edge::public_extensions(),
        schemes,
        input_modes: INPUT_MODES.map(str::to_owned).to_vec(),
        output_modes: OUTPUT_MODES.map(str::to_owned).to_vec(),
        skills: vec![coding()],
    }
}

fn coding() -> Skill {
    Skill {
        id: "opencode.chat".to_owned(),
        name: "Coding".to_owned(),
        description: "Reads, explains, writes and runs code in its workspace with the tools of OpenCode. Text, \
                      reasoning and tool calls are streamed as artifacts. Messages with the same context continue \
                      one conversation."
            .to_owned(),
        tags: ["assistant", "coding", "opencode"].map(str::to_owned).to_vec(),
        examples: ["Explain what this project does.", "Add a test for the parser and run it."]
            .map(str::to_owned)
            .to_vec(),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_says_what_was_configured() {
        let texts = CardTexts {
            title: "Agent".to_owned(),
            description: "Works.".to_owned(),
            version: "3".to_owned(),
            project: Some("harbour".to_owned()),
            documentation_url: Some("https://example.com/agent".parse().unwrap()),
        };
        let card = card(&texts, "https://agent.example.com/a/", vec![AuthScheme::Bearer]);
        assert_eq!(card.description, "Works. Deployment project: harbour.");
        assert_eq!(card.documentation_url.as_deref(), Some("https://example.com/agent"));
        let interfaces: Vec<_> =
            card.interfaces.iter().map(|interface| (interface.url.as_str(), interface.binding)).collect();
        let url = "https://agent.example.com/a";
        assert_eq!(interfaces, [(url, Binding::JsonRpc), (url, Binding::Rest)]);
        assert_eq!(card.schemes, [AuthScheme::Bearer]);
        assert_eq!(card.extensions, longshore_edge::public_extensions());
        // Files are not taken yet, so no type of a file is listed.
        assert_eq!(card.input_modes, ["text/plain", "application/json"]);
        assert_eq!(card.output_modes, ["text/plain", "application/json"]);
    }
}
