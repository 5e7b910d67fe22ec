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

/// Prints the facts of a card for people.
fn print(card: &Value) {
    let version = Some(text(&card["version"])).filter(|version| !version.is_empty());
    output::print(
        version.map_or_else(|| text(&card["name"]), |version| format!("{} {version}", text(&card["name"]))),
    );
    let description = text(&card["description"]);
    if !description.is_empty() {
        output::print(format_args!("  {description}"));
    }
    interfaces(card).iter().for_each(output::print);
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

/// The interfaces of 1.0 and then those of 0.3, of which the first is in the card itself. Duplicates are removed.
fn interfaces(card: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |interface: &Value, binding: &Value, version: &Value| {
        let or = |value: &Value, other: &str| {
            Some(text(value)).filter(|text| !text.is_empty()).unwrap_or_else(|| other.to_owned())
        };
        let version = or(version, "0.3");
        // Leave out the third number of the version, which does not concern the protocol.
        let short = version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        let line =
            format!("  interface  {} of A2A {short} at {}", or(binding, "JSONRPC"), text(&interface["url"]));
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for interface in card["supportedInterfaces"].as_array().into_iter().flatten() {
        add(interface, &interface["protocolBinding"], &interface["protocolVersion"]);
    }
    if card["url"].is_string() {
        add(card, &card["preferredTransport"], &card["protocolVersion"]);
    }
    for interface in card["additionalInterfaces"].as_array().into_iter().flatten() {
        add(interface, &interface["transport"], &card["protocolVersion"]);
    }
    lines
}

fn text(value: &Value) -> String {
    output::harmless_line(value.as_str().unwrap_or_default())
}
