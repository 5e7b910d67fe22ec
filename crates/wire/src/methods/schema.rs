//! Generates the JSON Schema of parameters and results from the rows of the table.
//!
//! A value that matches the schema is accepted, except for rules that a schema cannot express: limits of texts are in bytes, and
//! names have more rules than their length. The gateway also accepts alternative spellings (numbers and flags as text, `null` for
//! absent), which are not in the schema.

use longshore_model::id::MAX_ID_LENGTH;
use serde_json::{Map, Value, json};

use super::item::{Field, FieldType, Item};
use super::param::{IdKind, Kind, MAX_BRANCH, MAX_CURSOR, MAX_LINE, MAX_NAME, MODEL, Param, Routing};
use super::row::{Answer, Method};
use crate::contract::Deployment;
use crate::names::AGENT_OBJECT;
use crate::openapi::reference;
use crate::surface::ProtocolVersion;

/// The schema of a method's parameters. Leaves out disabled parameters.
pub(crate) fn params(method: &Method, deployment: &Deployment) -> Value {
    let is_on = |param: &&Param| param.switch.is_none_or(|switch| switch.is_on(deployment));
    object(method.params, &is_on)
}

fn object(fields: &[Param], is_on: &dyn Fn(&&Param) -> bool) -> Value {
    let on = || fields.iter().filter(is_on);
    let mut schema = json!({"type": "object"});
    let required: Vec<&str> = on().filter(|param| param.required).map(|param| param.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let together: Map<String, Value> =
        on().filter_map(|param| Some((param.name.to_owned(), json!([param.with?])))).collect();
    if !together.is_empty() {
        schema["dependentRequired"] = Value::Object(together);
    }
    let described = |param: &Param| {
        let mut schema = of_kind(&param.kind, is_on);
        schema["description"] = json!(param.description());
        (param.name.to_owned(), schema)
    };
    schema["properties"] = Value::Object(on().map(described).collect());
    schema["additionalProperties"] = json!(false);
    schema
}

fn of_kind(kind: &Kind, is_on: &dyn Fn(&&Param) -> bool) -> Value {
    match kind {
        Kind::Id(kind) => id(*kind),
        Kind::Line { max, may_be_blank } | Kind::Lines { max, may_be_blank } => text(*max, !may_be_blank),
        Kind::Text { max } => text(*max, false),
        Kind::Word(words) => json!({"enum": words}),
        Kind::FileName { max } => text(*max, true),
        Kind::Branch => text(MAX_BRANCH, true),
        Kind::Command => text(MAX_NAME, true),
        Kind::Int { min, max, default } => {
            let mut schema = json!({"type": "integer", "minimum": min, "maximum": max});
            if let Some(default) = default {
                schema["default"] = json!(default);
            }
            schema
        }
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Off => json!({"const": false}),
        Kind::Cursor => text(MAX_CURSOR, true),
        Kind::Directory | Kind::Reply => text(MAX_LINE, true),
        Kind::Metadata { routed } => metadata(*routed),
        Kind::Object(fields) => object(fields, is_on),
        Kind::OneOf(fields) => {
            let mut schema = object(fields, is_on);
            let either: Vec<Value> = fields.iter().map(|field| json!({"required": [field.name]})).collect();
            schema["oneOf"] = Value::from(either);
            schema
        }
        Kind::Tagged(variants) => {
            let variant = |variant: &super::Variant| {
                let mut schema = object(variant.fields, is_on);
                schema["properties"]["type"] = json!({"const": variant.tag});
                let required = variant.fields.iter().filter(|field| field.required).map(|field| field.name);
                schema["required"] = std::iter::once("type").chain(required).collect();
                schema
            };
            json!({"oneOf": variants.iter().map(variant).collect::<Vec<_>>()})
        }
        Kind::List { of, max, may_be_empty } => {
            let mut schema = json!({"type": "array", "items": of_kind(of, is_on), "maxItems": max});
            if !may_be_empty {
                schema["minItems"] = json!(1);
            }
            schema
        }
        Kind::Map { of, max } => {
            json!({
                "type": "object",
                "propertyNames": text(MAX_NAME, true),
                "additionalProperties": of_kind(of, is_on),
                "maxProperties": max,
            })
        }
        Kind::ModelRef => {
            json!({"anyOf": [object(MODEL, is_on), {"type": "string", "minLength": 3, "maxLength": MAX_NAME + 1 + MAX_LINE}]})
        }
        Kind::Json { .. } => json!({"type": "object", "additionalProperties": true}),
        Kind::Answers => {
            json!({"type": "array", "items": {"type": "array", "items": {"type": "string"}}})
        }
    }
}

pub(crate) fn id(kind: IdKind) -> Value {
    if kind.prefix.is_empty() {
        return reference("Id");
    }
    let pattern = format!("^{}[A-Za-z0-9_.:-]*$", kind.prefix);
    json!({"type": "string", "maxLength": MAX_ID_LENGTH, "pattern": pattern})
}

pub(crate) fn text(max: usize, is_filled: bool) -> Value {
    let mut schema = json!({"type": "string", "maxLength": max});
    if is_filled {
        schema["minLength"] = json!(1);
    }
    schema
}

/// The schema of metadata. Describes only the location, because other fields are ignored.
fn metadata(routed: Option<&Routing>) -> Value {
    let open = json!({"type": "object", "additionalProperties": true});
    let mut of_agent = open.clone();
    if let Some(routing) = routed {
        of_agent["properties"] = (routing.fields)();
    }
    json!({"type": "object", "properties": {AGENT_OBJECT: of_agent, "shared": open}, "additionalProperties": false})
}

/// The name of the schema of a result. Methods whose results have the same fields share it.
pub(crate) fn result_name(answer: Answer, version: ProtocolVersion) -> String {
    let name = match answer {
        Answer::Items(item) => item.list.map_or_else(|| format!("{}List", item.name), str::to_owned),
        Answer::Page(item) => format!("{}Page", item.name),
        Answer::Catalog(item) => format!("{}Catalog", item.name),
        Answer::Item(item) => format!("{}Result", item.name),
        Answer::ItemOrNull(item) => format!("{}OrNull", item.name),
        Answer::ItemOfTask(item) => format!("{}OfTask", item.name),
        Answer::Flag => "FlagResult".to_owned(),
        Answer::Done => "SessionDone".to_owned(),
        Answer::Begun => "SessionBegun".to_owned(),
        Answer::Answered => "InterruptAnswered".to_owned(),
    };
    let differs = result(answer, ProtocolVersion::V1) != result(answer, ProtocolVersion::V03);
    if version == ProtocolVersion::V03 && differs { older(&name) } else { name }
}

fn older(name: &str) -> String {
    format!("V03{name}")
}

/// The result of a method.
pub(crate) fn result(answer: Answer, version: ProtocolVersion) -> Value {
    let items = |item: Item| {
        let is_bare = item.is_text_in_v03 && version == ProtocolVersion::V03;
        let items = if is_bare { json!({"type": "string"}) } else { reference(&item_name(item, version)) };
        json!({"type": "array", "items": items})
    };
    let (description, fields) = match answer {
        Answer::Items(item) => (item.help, json!({"items": items(item)})),
        Answer::Page(item) => {
            let cursor = json!({"type": ["string", "null"], "description": "The cursor of the next older page. Null: this is the last page."});
            (item.help, json!({"items": items(item), "next_cursor": cursor}))
        }
        Answer::Catalog(item) => {
            let texts = json!({"type": "array", "items": {"type": "string"}});
            let defaults = json!({"type": "object", "additionalProperties": {"type": "string"}});
            let fields = json!({"items": items(item), "default_by_provider": defaults, "connected": texts});
            (item.help, fields)
        }
        Answer::Item(item) => (item.help, json!({"item": reference(&item_name(item, version))})),
        Answer::ItemOrNull(item) => {
            let item_or_null = json!({"anyOf": [reference(&item_name(item, version)), {"type": "null"}]});
            (item.help, json!({"item": item_or_null}))
        }
        Answer::ItemOfTask(item) => (
            "The last answer of a turn, and the task of the turn.",
            json!({"item": reference(&item_name(item, version)), "task_id": reference("Id"), "context_id": reference("Id")}),
        ),
        Answer::Flag => ("Whether it was done.", json!({"ok": {"type": "boolean"}})),
        Answer::Done => (
            "Whether it was done, and in which session.",
            json!({"ok": {"type": "boolean"}, "session_id": reference("Id")}),
        ),
        Answer::Begun => (
            "Whether it was done, in which session, and the task that began.",
            json!({
                "ok": {"type": "boolean"},
                "session_id": reference("Id"),
                "task_id": reference("Id"),
                "context_id": reference("Id"),
            }),
        ),
        Answer::Answered => {
            ("The agent has the answer.", json!({"ok": {"const": true}, "request_id": reference("Id")}))
        }
    };
    let required: Vec<&str> = match answer {
        Answer::Begun => vec!["ok", "session_id"],
        _ => answer.fields().to_vec(),
    };
    json!({"type": "object", "description": description, "required": required, "properties": fields})
}

/// The name of the schema of an item.
pub(crate) fn item_name(item: Item, version: ProtocolVersion) -> String {
    // A2A itself describes an item without fields, and does so differently in each version.
    let differs = item.fields.is_empty() || item.fields.iter().any(|field| field.version.is_some());
    if version == ProtocolVersion::V03 && differs { older(item.name) } else { item.name.to_owned() }
}

/// The schema of an item. `None`: A2A itself defines the item.
pub(crate) fn item(item: Item, version: ProtocolVersion) -> Option<Value> {
    if item.fields.is_empty() {
        return None;
    }
    let mut schema = of_fields(item.fields, version);
    schema["description"] = json!(item.help);
    Some(schema)
}

fn of_fields(fields: &[Field], version: ProtocolVersion) -> Value {
    let seen = || fields.iter().filter(|field| field.version.is_none_or(|only| only == version));
    let required: Vec<&str> = seen().filter(|field| field.always).map(|field| field.name).collect();
    let described = |field: &Field| {
        let mut schema = of_field_type(&field.field_type, version);
        schema["description"] = json!(field.help);
        (field.name.to_owned(), schema)
    };
    let mut schema = json!({"type": "object"});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema["properties"] = Value::Object(seen().map(described).collect());
    schema
}

fn of_field_type(field_type: &FieldType, version: ProtocolVersion) -> Value {
    match field_type {
        FieldType::Id => reference("Id"),
        FieldType::Text => json!({"type": "string"}),
        FieldType::Flag => json!({"type": "boolean"}),
        FieldType::Count => json!({"type": "integer", "minimum": 0}),
        FieldType::Millis => json!({"type": "integer"}),
        FieldType::Texts => json!({"type": "array", "items": {"type": "string"}}),
        FieldType::Words(words) => json!({"enum": words}),
        FieldType::Deadline => json!({"type": ["number", "null"]}),
        FieldType::Facts => json!({"type": "object", "additionalProperties": true}),
        FieldType::Object(fields) => of_fields(fields, version),
        FieldType::Objects(fields) => json!({"type": "array", "items": of_fields(fields, version)}),
    }
}
