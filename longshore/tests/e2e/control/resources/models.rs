//! Providers and models of OpenCode, without their addresses and keys.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::control::fixture::Fixture;

const PROVIDERS: &str = "opencode.providers.list";
const MODELS: &str = "opencode.models.list";

/// All fields of a provider, and of a model.
const OF_PROVIDER: [&str; 6] =
    ["provider_id", "name", "connected", "model_count", "source", "default_model_id"];
const OF_MODEL: [&str; 11] = [
    "provider_id",
    "model_id",
    "name",
    "default",
    "connected",
    "status",
    "context_window",
    "max_output_tokens",
    "supports_reasoning",
    "supports_tool_call",
    "supports_attachments",
];

pub(super) async fn are_listed(fixture: &Fixture) {
    let upstream = fixture.harness.opencode.get("/provider").await;
    let address = fixture.model.base_url();
    assert!(upstream.to_string().contains(&address), "OpenCode shows the address of its model: {upstream:#}");
    for ada in fixture.ada() {
        let providers = ada.result(PROVIDERS, json!({})).await;
        let models = ada.result(MODELS, json!({})).await;
        for (reported, known) in [(&providers, OF_PROVIDER.as_slice()), (&models, OF_MODEL.as_slice())] {
            assert_eq!(reported["default_by_provider"], upstream["default"], "{reported:#}");
            assert_eq!(reported["connected"], upstream["connected"], "{reported:#}");
            assert!(
                !reported.to_string().contains(&address),
                "the answer contains the address of the model: {reported:#}"
            );
            let fields = items(reported).iter().flat_map(|item| item.as_object().expect("an object").keys());
            let fields: BTreeSet<&str> = fields.map(String::as_str).collect();
            assert!(fields.iter().all(|field| known.contains(field)), "{fields:?}");
        }
        let ids = |reported: &[Value], key: &str| -> Vec<String> {
            reported.iter().map(|item| item[key].as_str().expect("an id").to_owned()).collect()
        };
        let all = upstream["all"].as_array().expect("a list");
        assert_eq!(ids(items(&providers), "provider_id"), ids(all, "id"));
        let demo = items(&providers).iter().find(|provider| provider["provider_id"] == "demo");
        let demo = demo.unwrap_or_else(|| panic!("the demo model is not in {providers:#}"));
        assert_eq!(
            (&demo["name"], &demo["connected"], &demo["model_count"]),
            (&json!("Longshore demo"), &json!(true), &json!(3))
        );

        let of_demo = ada.result(MODELS, json!({"provider_id": "demo"})).await;
        assert_eq!(ids(items(&of_demo), "model_id"), ["demo", "demo-small", "demo-tiny"]);
        for model in items(&of_demo) {
            assert!(items(&models).contains(model), "{model:#}");
            assert_eq!(model["default"], model["model_id"] == upstream["default"]["demo"], "{model:#}");
        }
        let model = &items(&of_demo)[0];
        for (field, value) in [
            ("name", json!("Demo model")),
            ("connected", json!(true)),
            ("context_window", json!(200_000)),
            ("max_output_tokens", json!(8192)),
            ("supports_reasoning", json!(true)),
            ("supports_tool_call", json!(true)),
            ("supports_attachments", json!(true)),
        ] {
            assert_eq!(model[field], value, "{field} of {model:#}");
        }
        let unknown = ada.result(MODELS, json!({"provider_id": "nobody"})).await;
        assert_eq!(unknown["items"], json!([]), "{unknown:#}");
        ada.invalid(MODELS, json!({"provider_id": " "}), "provider_id").await;

        // They depend on the directory.
        let below = json!({"metadata": {"opencode": {"directory": "ships"}}});
        assert_eq!(ada.result(PROVIDERS, below).await, providers);
        for (routing, field) in [
            (json!({"directory": "/"}), "metadata.opencode.directory"),
            (json!({"workspace": {"id": "wrk_nobody"}}), "metadata.opencode.workspace.id"),
        ] {
            ada.invalid(MODELS, json!({"metadata": {"opencode": routing}}), field).await;
        }
    }
}

fn items(reported: &Value) -> &[Value] {
    reported["items"].as_array().unwrap_or_else(|| panic!("no items in {reported:#}"))
}
