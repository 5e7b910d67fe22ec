//! Writes providers and models.

use longshore_model::{Catalog, ModelInfo, ProviderInfo};

use crate::json::{ObjectWriter, write_text};

pub(super) fn write<T>(
    object: &mut ObjectWriter<'_>,
    catalog: &Catalog<T>,
    mut write: impl FnMut(&mut Vec<u8>, &T),
) {
    object.array("items", &catalog.items, &mut write);
    object.object("default_by_provider", |defaults| {
        for (provider, model) in &catalog.default_by_provider {
            write_text(defaults.foreign_key(provider), model);
        }
    });
    object.texts("connected", &catalog.connected);
}

pub(super) fn write_provider(out: &mut Vec<u8>, info: &ProviderInfo) {
    let ProviderInfo { id, name, connected, model_count, source, default_model } = info;
    let mut item = ObjectWriter::begin(out);
    item.text("provider_id", id);
    item.text("name", name);
    item.boolean("connected", *connected);
    item.number("model_count", *model_count);
    item.some_text("source", source.as_deref());
    item.some_text("default_model_id", default_model.as_deref());
    item.end();
}

pub(super) fn write_model(out: &mut Vec<u8>, info: &ModelInfo) {
    let mut item = ObjectWriter::begin(out);
    item.text("provider_id", &info.provider);
    item.text("model_id", &info.id);
    item.text("name", &info.name);
    item.boolean("default", info.is_default);
    item.boolean("connected", info.connected);
    item.some_text("status", info.status.as_deref());
    let sizes = [("context_window", info.context_window), ("max_output_tokens", info.max_output_tokens)];
    for (key, size) in sizes {
        if let Some(size) = size {
            item.number(key, size);
        }
    }
    let abilities = [
        ("supports_reasoning", info.supports_reasoning),
        ("supports_tool_call", info.supports_tool_call),
        ("supports_attachments", info.supports_attachments),
    ];
    for (key, ability) in abilities {
        if let Some(ability) = ability {
            item.boolean(key, ability);
        }
    }
    item.end();
}
