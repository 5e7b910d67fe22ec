//! Tests of the table as a whole.

use std::collections::HashSet;
use std::fmt::Write as _;

use longshore_model::ErrorKind;

use super::*;
use crate::opencode::{method as find, methods as all};

mod asks;
mod control;
mod properties;

fn method(name: &str) -> &'static Method {
    find(name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn the_whole_table() {
    let mut table = String::new();
    for method in all() {
        let Method { name, key, extension, result, effect, switch, upstream, .. } = method;
        writeln!(table, "{name} ({key}) {extension:?} {effect:?} {}", result_of(*result)).unwrap();
        if let Some(switch) = switch {
            writeln!(table, "  only with {}, for {}", switch.toggle(), switch.capability().as_str()).unwrap();
        }
        for param in method.params {
            write_param(&mut table, param, 1);
        }
        for Upstream { verb, path, query } in *upstream {
            writeln!(table, "  -> {} {path} {}", verb.as_str(), query.join(" ")).unwrap();
        }
        let errors: Vec<&str> = method.errors.iter().map(|kind| kind.label()).collect();
        writeln!(table, "  fails with {}", errors.join(" ")).unwrap();
    }
    insta::assert_snapshot!(table);
}

fn result_of(result: Answer) -> String {
    let word = format!("{result:?}");
    match result.item() {
        Some(item) => {
            let name = if item.name == "SessionSummary" {
                item.name
            } else {
                item.name.trim_end_matches("Summary").trim_end_matches("Request")
            };
            format!("{}({name})", word.split_once('(').unwrap().0)
        }
        None => word,
    }
}

fn write_param(table: &mut String, param: &Param, depth: usize) {
    let Param { name, required, with, switch, runs, .. } = param;
    let mark = if *required { "!" } else { "" };
    write!(table, "{}{name}{mark} ", "  ".repeat(depth)).unwrap();
    write_kind(table, &param.kind, depth);
    if let Some(other) = with {
        table.insert_str(table.len() - 1, &format!(", with {other}"));
    }
    if let Some(switch) = switch {
        table.insert_str(table.len() - 1, &format!(", only with {switch:?}"));
    }
    if let Some(switch) = runs {
        table.insert_str(table.len() - 1, &format!(", what is run with {switch:?}"));
    }
}

fn write_kind(table: &mut String, kind: &Kind, depth: usize) {
    let (word, fields) = match kind {
        Kind::Object(fields) => ("object", *fields),
        Kind::OneOf(fields) => ("one of", *fields),
        Kind::Tagged(variants) => {
            writeln!(table, "by type").unwrap();
            for variant in *variants {
                writeln!(table, "{}{}:", "  ".repeat(depth + 1), variant.tag).unwrap();
                variant.fields.iter().for_each(|field| write_param(table, field, depth + 2));
            }
            return;
        }
        Kind::List { of, max, may_be_empty } => {
            write!(table, "list of {}..={max} ", usize::from(!may_be_empty)).unwrap();
            return write_kind(table, of, depth);
        }
        Kind::Map { of, max } => {
            write!(table, "map of at most {max} ").unwrap();
            return write_kind(table, of, depth);
        }
        Kind::Id(kind) => return writeln!(table, "Id({})", kind.name).unwrap(),
        Kind::Metadata { routed } => {
            return writeln!(table, "Metadata {{ routed: {} }}", routed.is_some()).unwrap();
        }
        plain => {
            writeln!(table, "{plain:?}").unwrap();
            return;
        }
    };
    writeln!(table, "{word}").unwrap();
    for field in fields {
        write_param(table, field, depth + 1);
    }
}

#[test]
fn every_row_is_complete_and_consistent() {
    let (mut names, mut keys) = (HashSet::new(), HashSet::new());
    for method in all() {
        assert!(names.insert(method.name) && keys.insert(method.key), "{}", method.name);
        assert!(method.summary.ends_with('.'), "{}", method.name);
        assert!(std::ptr::eq(find(method.name).unwrap(), find(method.name).unwrap()), "{}", method.name);
        // A method that needs a capability must list the error for a missing capability.
        let can_lack = method.errors.contains(&ErrorKind::AuthorizationForbidden);
        let can_need = method.needs().is_some() || !method.param_switches().is_empty();
        assert_eq!(can_need, can_lack, "{}", method.name);
        // A method about a session must list the error for a session that does not exist.
        let has_session = method.params.iter().any(|param| param.name == "session_id");
        assert_eq!(method.errors.contains(&ErrorKind::SessionNotFound), has_session, "{}", method.name);
        // The session can belong to another caller. This also applies to a method that removes sessions.
        let removes_sessions = method.key == "remove_workspace";
        let can_be_forbidden = method.errors.contains(&ErrorKind::SessionForbidden);
        assert_eq!(can_be_forbidden, has_session || removes_sessions, "{}", method.name);
        assert_eq!(method.paged, method.params.iter().any(|param| param.name == "limit"), "{}", method.name);
        assert!(method.first <= method.params.len(), "{}", method.name);
        check_fields(method.name, method.params);
    }
    assert_eq!(names.len(), 36);
    for name in ["", "opencode.sessions", "opencode.sessions.create", "SendMessage"] {
        assert!(find(name).is_none(), "{name}");
    }
}

/// Names must be unique, and parameters that require each other must do so in both directions.
fn check_fields(method: &str, fields: &[Param]) {
    let mut names = HashSet::new();
    for field in fields {
        assert!(names.insert(field.name), "{method} {}", field.name);
        assert!(field.help.ends_with('.'), "{method} {}", field.name);
        if let Some(with) = field.with {
            let other = fields.iter().find(|other| other.name == with).unwrap();
            assert_eq!(other.with, Some(field.name), "{method} {}", field.name);
            assert!(!field.required && !other.required, "{method} {}", field.name);
        }
        check_kind(method, &field.kind);
    }
}

fn check_kind(method: &str, kind: &Kind) {
    match kind {
        Kind::Object(fields) => check_fields(method, fields),
        Kind::OneOf(fields) => {
            assert!(fields.iter().all(|field| !field.required), "{method}");
            // A default would add a second parameter to the given one.
            let has_default = |field: &Param| matches!(field.kind, Kind::Int { default: Some(_), .. });
            assert!(!fields.iter().any(has_default), "{method}");
            check_fields(method, fields);
        }
        Kind::Tagged(variants) => variants.iter().for_each(|variant| {
            check_fields(method, variant.fields);
            // `args::need` only checks the fields of objects.
            assert!(variant.fields.iter().all(|field| field.needs().is_none()), "{method} {}", variant.tag);
        }),
        Kind::List { of, .. } | Kind::Map { of, .. } => check_kind(method, of),
        _ => {}
    }
}
