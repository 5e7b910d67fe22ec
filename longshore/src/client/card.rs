//! `longshore card`.

use longshore_client::{Discovery, ErrorKind};
use serde_json::Value;

use super::exit::{Code, Failure};
use super::render::print_json;
use super::target;
use crate::cli::client::{Card, OutputFormat};
use crate::output;

pub(crate) async fn card(options: &Card) -> Result<Code, Failure> {
    let agent = target::find(&options.target, options.place.as_deref()).await?;
    let json = match (options.extended, agent.client.card()) {
        (true, _) => agent.client.extended_card().await.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Failure::new(Code::Failed, "the agent has no extended card"),
            _ => error.into(),
        })?,
        (false, Some(card)) => card.json.clone(),
        (false, None) => {
            let url = agent.client.interface().url.clone();
            let found = Discovery::new().find(url.as_str(), agent.client.settings()).await?;
            found.card.json.clone()
        }
    };
    if options.output == OutputFormat::Text {
        print(&json);
    } else {
        print_json(&json);
    }
    Ok(Code::Completed)
}

/// Prints what a person wants to know of a card.
fn print(card: &Value) {
    let text = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        text.chars().filter(|c| !c.is_control()).collect::<String>()
    };
    let version = Some(text(&card["version"])).filter(|version| !version.is_empty());
    output::print(
        version.map_or_else(|| text(&card["name"]), |version| format!("{} {version}", text(&card["name"]))),
    );
    let description = text(&card["description"]);
    if !description.is_empty() {
        output::print(format_args!("  {description}"));
    }
    for interface in card["supportedInterfaces"].as_array().into_iter().flatten() {
        output::print(format_args!(
            "  interface  {} of A2A {} at {}",
            text(&interface["protocolBinding"]),
            text(&interface["protocolVersion"]),
            text(&interface["url"])
        ));
    }
    // 0.3 has one interface in the card itself, and the others in a list. They may repeat each other.
    let old = |interface: &Value, transport: &str| {
        let transport = Some(text(&interface[transport])).filter(|name| !name.is_empty());
        let transport = transport.unwrap_or_else(|| "JSONRPC".to_owned());
        let version = Some(text(&card["protocolVersion"])).filter(|version| !version.is_empty());
        let version = version.unwrap_or_else(|| "0.3".to_owned());
        format!("  interface  {transport} of A2A {version} at {}", text(&interface["url"]))
    };
    let mut lines: Vec<String> =
        card["url"].is_string().then(|| old(card, "preferredTransport")).into_iter().collect();
    for interface in card["additionalInterfaces"].as_array().into_iter().flatten() {
        let line = old(interface, "transport");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.iter().for_each(output::print);
    for (name, title) in [("streaming", "streams"), ("pushNotifications", "push notifications")] {
        let has = if card["capabilities"][name] == true { "yes" } else { "no" };
        output::print(format_args!("  {title}: {has}"));
    }
    for skill in card["skills"].as_array().into_iter().flatten() {
        output::print(format_args!("  skill  {}: {}", text(&skill["name"]), text(&skill["description"])));
    }
    for extension in card["capabilities"]["extensions"].as_array().into_iter().flatten() {
        output::print(format_args!("  extension  {}", text(&extension["uri"])));
    }
}
