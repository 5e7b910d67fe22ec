//! Implements the part of JSON Schema that the document uses. An unknown keyword fails the test.
//!
//! The check is stricter than the standard in one respect: a field that no schema mentions is an error. So the gateway cannot write
//! anything that the document does not describe.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{base64, time};

/// Checks a value against a schema of a document.
pub(super) fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let seen = fits(document, schema, value)?;
    let Some(fields) = value.as_object() else { return Ok(()) };
    match fields.keys().find(|key| !seen.contains(*key)) {
        Some(key) => Err(format!("no schema mentions {key} in {value}")),
        None => Ok(()),
    }
}

/// Checks that the value matches the schema. Returns the fields that the schema mentions.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<BTreeSet<String>, String> {
    let schema = schema.as_object().expect("a schema is an object");
    let mut seen = BTreeSet::new();
    let wrong = || Err(format!("{value} does not fit {}", Value::Object(schema.clone())));
    for (keyword, rule) in schema {
        let number = || rule.as_f64().expect("a number");
        let length = |has: Option<usize>| has.map(|has| i64::try_from(has).expect("a length"));
        let texts = value.as_str().map(|text| text.chars().count());
        let items = value.as_array().map(Vec::len);
        let limit = rule.as_i64();
        let is_good = match keyword.as_str() {
            "title" | "description" | "default" | "x-a2a-result" => true,
            "$ref" => {
                let pointer = rule.as_str().expect("a text").trim_start_matches('#');
                let target = document.pointer(pointer).expect("a reference is defined");
                seen.extend(fits(document, target, value)?);
                true
            }
            "type" => match rule {
                Value::String(name) => has_type(value, name),
                names => names
                    .as_array()
                    .expect("a list")
                    .iter()
                    .any(|name| has_type(value, name.as_str().expect("a text"))),
            },
            "const" => value == rule,
            "enum" => rule.as_array().expect("a list").contains(value),
            "minLength" => length(texts).is_none_or(|has| Some(has) >= limit),
            "maxLength" => length(texts).is_none_or(|has| Some(has) <= limit),
            "minItems" => length(items).is_none_or(|has| Some(has) >= limit),
            "maxItems" => length(items).is_none_or(|has| Some(has) <= limit),
            "minimum" => value.as_f64().is_none_or(|has| has >= number()),
            "maximum" => value.as_f64().is_none_or(|has| has <= number()),
            "pattern" => value.as_str().is_none_or(|text| matches(text, rule.as_str().expect("a text"))),
            "format" => value.as_str().is_none_or(|text| rule != "date-time" || time::parse(text).is_some()),
            "contentEncoding" => value.as_str().is_none_or(|text| base64::decode(text).is_some()),
            "required" => value.as_object().is_none_or(|fields| {
                rule.as_array()
                    .expect("a list")
                    .iter()
                    .all(|name| fields.contains_key(name.as_str().expect("a text")))
            }),
            "propertyNames" => {
                for key in value.as_object().into_iter().flat_map(Map::keys) {
                    check(document, rule, &Value::from(key.as_str()))?;
                }
                true
            }
            "maxProperties" => length(value.as_object().map(Map::len)).is_none_or(|has| Some(has) <= limit),
            "dependentRequired" => value.as_object().is_none_or(|fields| {
                let rules = rule.as_object().expect("an object").iter();
                let mut others = rules
                    .filter(|(name, _)| fields.contains_key(*name))
                    .flat_map(|(_, others)| others.as_array().expect("a list"));
                others.all(|name| fields.contains_key(name.as_str().expect("a text")))
            }),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check(document, rule, item)?;
                }
                true
            }
            "properties" => {
                let rules = rule.as_object().expect("an object");
                for (key, field) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rules.get(key) {
                        seen.insert(key.clone());
                        check(document, rule, field).map_err(|why| format!("{key}: {why}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                additional(document, schema, rule, value, &mut seen)?;
                true
            }
            "allOf" => {
                for part in rule.as_array().expect("a list") {
                    seen.extend(fits(document, part, value)?);
                }
                true
            }
            "oneOf" | "anyOf" => {
                let found: Vec<_> =
                    rule.as_array().expect("a list").iter().map(|part| fits(document, part, value)).collect();
                let good = found.iter().filter(|found| found.is_ok()).count();
                seen.extend(found.iter().flatten().flatten().cloned());
                if good == 0 {
                    let why: Vec<String> = found.into_iter().filter_map(Result::err).collect();
                    return Err(why.join("; "));
                }
                keyword == "anyOf" || good == 1
            }
            _ => panic!("the keyword {keyword} is unknown"),
        };
        if !is_good {
            return wrong();
        }
    }
    // A schema without rules permits every field.
    let has_no_rules = schema.keys().all(|keyword| matches!(keyword.as_str(), "title" | "description"));
    if has_no_rules {
        seen.extend(value.as_object().into_iter().flatten().map(|(key, _)| key.clone()));
    }
    Ok(seen)
}

fn additional(
    document: &Value,
    schema: &Map<String, Value>,
    rule: &Value,
    value: &Value,
    seen: &mut BTreeSet<String>,
) -> Result<(), String> {
    let listed = schema.get("properties").and_then(Value::as_object);
    for (key, field) in value.as_object().into_iter().flatten() {
        if listed.is_some_and(|listed| listed.contains_key(key)) {
            continue;
        }
        match rule {
            Value::Bool(true) => {}
            Value::Bool(false) => return Err(format!("{key} is not permitted")),
            rule => check(document, rule, field).map_err(|why| format!("{key}: {why}"))?,
        }
        seen.insert(key.clone());
    }
    Ok(())
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("{name} is not a type"),
    }
}

/// Matches the patterns that occur in the document, without a regex engine.
fn matches(text: &str, pattern: &str) -> bool {
    match pattern {
        "^[A-Za-z0-9_.:-]+$" => longshore_model::id::check_id(text).is_ok(),
        "^wrk" => text.starts_with("wrk"),
        _ => {
            let prefix = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix("[A-Za-z0-9_.:-]*$"));
            let prefix = prefix.unwrap_or_else(|| panic!("the pattern {pattern} is unknown"));
            text.starts_with(prefix) && longshore_model::id::check_id(text).is_ok()
        }
    }
}
