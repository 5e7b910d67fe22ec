//! Prints JSON documents for snapshots: one in full, and others as differences to it. For tests only.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::Value;

/// The width within which a value is printed on one line.
const WIDTH: usize = 130;

/// A document as pretty-printed JSON, with short objects and arrays on one line.
pub(crate) fn print(document: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, document, 0, 0);
    out
}

/// The differences between two documents, one per line: `+` added, `-` removed, `~` changed. A removed value is not printed,
/// because the other document contains it.
pub(crate) fn changes(from: &Value, to: &Value) -> String {
    let mut out = String::new();
    compare(&mut out, "", from, to);
    if out.is_empty() { "(no difference)\n".to_owned() } else { out }
}

/// Replaces each part of a document that equals one of the known documents by the name of that document.
pub(crate) fn elide(document: &mut Value, known: &[(impl AsRef<str>, Value)]) {
    if let Some((name, _)) = known.iter().find(|(_, value)| value == document) {
        *document = Value::from(format!("<{}>", name.as_ref()));
        return;
    }
    match document {
        Value::Object(fields) => fields.values_mut().for_each(|value| elide(value, known)),
        Value::Array(items) => items.iter_mut().for_each(|value| elide(value, known)),
        _ => {}
    }
}

/// Replaces texts, even inside other texts and in keys.
pub(crate) fn replace(document: &mut Value, texts: &[(String, String)]) {
    let mut json = document.to_string();
    for (from, to) in texts {
        json = json.replace(from, to);
    }
    *document = serde_json::from_str(&json).unwrap();
}

/// Writes a value. `used`: the number of characters on the line so far.
fn write_value(out: &mut String, value: &Value, indent: usize, used: usize) {
    let compact = value.to_string();
    match value {
        _ if used + compact.len() <= WIDTH => out.push_str(&compact),
        Value::Object(fields) => {
            let entries =
                fields.iter().map(|(key, value)| (format!("{}: ", Value::from(key.as_str())), value));
            write_block(out, ['{', '}'], indent, entries);
        }
        Value::Array(items) => {
            write_block(out, ['[', ']'], indent, items.iter().map(|item| (String::new(), item)));
        }
        _ => out.push_str(&compact),
    }
}

fn write_block<'a>(
    out: &mut String,
    [open, close]: [char; 2],
    indent: usize,
    entries: impl Iterator<Item = (String, &'a Value)>,
) {
    let inner = indent + 2;
    let mut column = WIDTH;
    out.push(open);
    for (index, (key, value)) in entries.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let short = Some(format!("{comma} {key}{value}")).filter(|_| is_name(value));
        if let Some(short) = short.filter(|short| column + short.len() <= WIDTH) {
            column += short.len();
            out.push_str(&short);
        } else {
            write!(out, "{comma}\n{:inner$}{key}", "").unwrap();
            write_value(out, value, inner, inner + key.len());
            column = if is_name(value) { inner + key.len() + value.to_string().len() } else { WIDTH };
        }
    }
    write!(out, "\n{:indent$}{close}", "").unwrap();
}

/// Names and references share a line with others.
fn is_name(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.len() == 1 && fields.contains_key("$ref"),
        Value::String(text) => !text.contains(' '),
        Value::Array(_) => false,
        _ => true,
    }
}

fn compare(out: &mut String, path: &str, from: &Value, to: &Value) {
    match (from, to) {
        _ if from == to => {}
        (Value::Object(from), Value::Object(to)) => {
            for key in from.keys().filter(|key| !to.contains_key(*key)) {
                writeln!(out, "- {}", field(path, key)).unwrap();
            }
            for (key, value) in to {
                match from.get(key) {
                    Some(earlier) => compare(out, &field(path, key), earlier, value),
                    None => write_change(out, '+', &field(path, key), value),
                }
            }
        }
        (Value::Array(from), Value::Array(to)) => compare_lists(out, path, from, to),
        _ => write_change(out, '~', path, to),
    }
}

/// Compares two lists. Elements that occur in both are recognized by their [`identity`].
fn compare_lists(out: &mut String, path: &str, from: &[Value], to: &[Value]) {
    let [old, new] = [from, to].map(|list| list.iter().map(identity).collect::<Vec<_>>());
    let is_unique = |names: &[String]| names.iter().collect::<HashSet<_>>().len() == names.len();
    let kept_of_old = old.iter().filter(|name| new.contains(name));
    let kept_of_new = new.iter().filter(|name| old.contains(name));
    let has_common = kept_of_new.clone().next().is_some();
    if !has_common || !is_unique(&old) || !is_unique(&new) || !kept_of_old.eq(kept_of_new) {
        return write_change(out, '~', path, &Value::from(to));
    }
    for (index, _) in old.iter().enumerate().filter(|(_, name)| !new.contains(name)) {
        writeln!(out, "- {path}[{index}]").unwrap();
    }
    for (index, (name, value)) in new.iter().zip(to).enumerate() {
        match old.iter().position(|other| other == name) {
            Some(earlier) => compare(out, &format!("{path}[{name}]"), &from[earlier], value),
            None => write_change(out, '+', &format!("{path}[{index}]"), value),
        }
    }
}

/// The identity of a list element: its id, or the whole element.
fn identity(value: &Value) -> String {
    let names = ["uri", "id", "name"];
    let name = names.into_iter().find_map(|name| value.get(name)?.as_str());
    name.map_or_else(|| value.to_string(), str::to_owned)
}

fn field(path: &str, key: &str) -> String {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match (is_plain, path) {
        (true, "") => key.to_owned(),
        (true, _) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{key}]"),
    }
}

fn write_change(out: &mut String, sign: char, path: &str, value: &Value) {
    let head = format!("{sign} {path}: ");
    out.push_str(&head);
    write_value(out, value, 0, head.len());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_change_is_printed() {
        let from = json!({"same": 1, "gone": {"a": 1}, "list": ["a", "b"], "named": [{"id": "x", "n": 1}], "order": [1, 2]});
        let to = json!({"same": 1, "list": ["b", "c"], "named": [{"id": "x", "n": 2}], "order": [2, 1], "a/b": null});
        let expected =
            "- gone\n- list[0]\n+ list[1]: \"c\"\n~ named[x].n: 2\n~ order: [2,1]\n+ [a/b]: null\n";
        assert_eq!(changes(&from, &to), expected);
        assert_eq!(changes(&from, &from), "(no difference)\n");
    }

    #[test]
    fn a_known_document_is_replaced_by_its_name() {
        let mut document = json!({"a": [{"b": 1}], "b": 1});
        elide(&mut document, &[("other", json!({"b": 1}))]);
        assert_eq!(document, json!({"a": ["<other>"], "b": 1}));
    }

    #[test]
    fn only_long_values_take_several_lines() {
        let long = "x y".repeat(WIDTH);
        let printed = print(&json!({"short": {"a": [1, 2]}, "names": ["n", "m", long]}));
        let expected = format!(
            "{{\n  \"short\": {{\"a\":[1,2]}},\n  \"names\": [\n    \"n\", \"m\",\n    \"{long}\"\n  ]\n}}"
        );
        assert_eq!(printed, expected);
    }
}
