//! The agent card, true to what runs.

use longshore_model::card::{AuthScheme, Binding, Card, INPUT_MODES, Interface, OUTPUT_MODES, Skill};

use crate::config::Plan;

/// The card of a gateway that clients reach at `public_url`.
pub(crate) fn card(plan: &Plan, public_url: &str, schemes: Vec<AuthScheme>) -> Card {
    let texts = &plan.card;
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
        extensions: longshore_edge::public_extensions(plan.output.exposure, &plan.required_extensions),
        schemes,
        input_modes: input_modes(plan),
        output_modes: OUTPUT_MODES.map(str::to_owned).to_vec(),
        skills: vec![coding()],
    }
}

/// What is always taken, and what was configured.
fn input_modes(plan: &Plan) -> Vec<String> {
    let always = INPUT_MODES.into_iter().map(str::to_owned);
    let more = plan.input.text_types.iter().chain(&plan.input.media_types).cloned();
    let mut modes = Vec::new();
    for mode in always.chain(more) {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
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
    }
}

#[cfg(test)]
mod tests {
    use longshore_edge::{Exposure, Extension};

    use super::*;
    use crate::config::{Flags, Surroundings, load};

    fn card_of(variables: &[(&str, &str)]) -> Card {
        let directory = tempfile::tempdir().unwrap();
        let environment = variables.iter().copied().chain([("HOME", "/home/ada")]).collect();
        let surroundings = Surroundings { directory: directory.path().canonicalize().unwrap(), environment };
        let plan = load(&Flags::default(), None, &surroundings).unwrap().plan;
        card(&plan, "https://agent.example.com/a/", vec![AuthScheme::Bearer])
    }

    #[test]
    fn the_card_says_what_was_configured() {
        let card = card_of(&[
            ("A2A_TITLE", "Agent"),
            ("A2A_DESCRIPTION", "Works."),
            ("A2A_PROJECT", "harbour"),
            ("A2A_DOCUMENTATION_URL", "https://example.com/agent"),
            ("IACCODE_A2A_TEXT_MIME_TYPES", "application/x-log,text/plain"),
            ("LONGSHORE_THINKING_EXPOSURE", "tool_trace"),
            ("LONGSHORE_REQUIRED_EXTENSIONS", Extension::StreamHints.uri()),
        ]);
        assert_eq!(card.description, "Works. Deployment project: harbour.");
        assert_eq!(card.documentation_url.as_deref(), Some("https://example.com/agent"));
        let interfaces: Vec<_> =
            card.interfaces.iter().map(|interface| (interface.url.as_str(), interface.binding)).collect();
        let url = "https://agent.example.com/a";
        assert_eq!(interfaces, [(url, Binding::JsonRpc), (url, Binding::Rest)]);
        assert_eq!(card.schemes, [AuthScheme::Bearer]);
        let exposure = Exposure { raw_thinking: false, tool_trace: true };
        let extensions = longshore_edge::public_extensions(exposure, &[Extension::StreamHints]);
        assert_eq!(card.extensions, extensions);
        let required: Vec<_> = card.extensions.iter().filter(|extension| extension.required).collect();
        assert_eq!(required.len(), 1);
        let more: Vec<_> = card.input_modes.iter().skip(INPUT_MODES.len()).collect();
        assert_eq!(more, ["application/x-log"]);
        assert_eq!(card.output_modes, ["text/plain", "application/json"]);
    }
}
