//! Checks the parameters of a call against the table of methods. Afterwards all values have the types, formats and limits of the
//! table, so the code that builds a call need not check them again.

use std::collections::BTreeMap;

use longshore_model::{Json, ModelName, WorkspaceId};
use serde_json::value::RawValue;

use super::form::{bounded, branch, cursor, file_name, flag, id, int, line, lines, shown};
use super::param::{Kind, MAX_LINE, MAX_NAME, MODEL, Param, Routing, Variant};
use super::row::Switch;
use crate::json::{Fault, Read, carried_json, is_null, list, members, text};
use crate::names::AGENT_OBJECT;

/// The message for a violation that would be a defect of the table, which checks the format of all parameters and that the required
/// ones exist.
pub(crate) const CHECKED: &str = "the table has checked this parameter";

/// The maximum number of unknown names that an error lists.
const MAX_UNKNOWN: usize = 16;

/// The values of an object by their names in the table. An absent parameter is included if it has a default.
#[derive(Debug, Default)]
pub(crate) struct Args(Vec<(&'static str, Arg)>);

#[derive(Debug)]
pub(crate) enum Arg {
    Text(String),
    Int(i64),
    Flag(bool),
    Json(Json),
    Answers(Vec<Vec<String>>),
    Location(Location),
    Object(Args),
    Tagged(&'static str, Args),
    List(Vec<Self>),
    /// The keys of a map whose values carry no information.
    Names(Vec<String>),
}

/// The directory or workspace in the metadata of a call.
#[derive(Debug, Default)]
pub(crate) struct Location {
    pub(crate) directory: Option<String>,
    pub(crate) workspace: Option<WorkspaceId>,
}

/// A value of an object. `within`: the inner object that contained the value. `None`: the object itself contained it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) raw: &'a RawValue,
    pub(crate) within: Option<&'static str>,
}

pub(crate) type Members<'a> = BTreeMap<String, Member<'a>>;

impl Args {
    pub(crate) fn get(&self, name: &str) -> Option<&Arg> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, arg)| arg)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Arg::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Arg::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Arg::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(crate) fn object(&self, name: &str) -> Option<&Self> {
        match self.get(name)? {
            Arg::Object(args) => Some(args),
            _ => None,
        }
    }

    pub(crate) fn list(&self, name: &str) -> &[Arg] {
        match self.get(name) {
            Some(Arg::List(args)) => args,
            _ => &[],
        }
    }
}

/// Checks the members of an object. The first `first` fields are checked before unknown names are refused.
pub(crate) fn check(fields: &'static [Param], first: usize, members: &Members<'_>) -> Read<Args> {
    let mut args = Vec::with_capacity(members.len());
    let (early, late) = fields.split_at(first.min(fields.len()));
    check_values(early, members, &mut args)?;
    check_names(fields, members)?;
    check_values(late, members, &mut args)?;
    for field in fields {
        let is_there = |name: &str| args.iter().any(|(known, _)| *known == name);
        if let Some(other) = field.with.filter(|other| is_there(field.name) && !is_there(other)) {
            return Err(Fault::new(format!("is required together with {}", field.name)).under(other));
        }
    }
    Ok(Args(args))
}

/// Finds the first parameter that needs another switch than that of its method.
pub(crate) fn need(fields: &[Param], args: &Args) -> Option<(String, Switch)> {
    fields.iter().find_map(|field| {
        let needed = match (&field.kind, args.get(field.name)?) {
            (Kind::Object(inner) | Kind::OneOf(inner), Arg::Object(given)) => {
                let (path, switch) = need(inner, given)?;
                return Some((format!("{}.{path}", field.name), switch));
            }
            (_, Arg::Text(text)) => field.switch.or(field.runs.filter(|_| may_run_shell(text))),
            _ => field.switch,
        };
        needed.map(|switch| (field.name.to_owned(), switch))
    })
}

/// Whether the agent might run a part of this text in a shell. An agent may execute !`...` in the text of a command, including its
/// arguments, without asking for permission. The two characters are searched separately, because a template can assemble them from
/// several arguments.
fn may_run_shell(text: &str) -> bool {
    text.contains('!') && text.contains('`')
}

fn check_values(
    fields: &'static [Param],
    members: &Members<'_>,
    args: &mut Vec<(&'static str, Arg)>,
) -> Read<()> {
    for field in fields {
        match members.get(field.name).filter(|member| !is_null(member.raw)) {
            Some(member) => {
                let checked = value(&field.kind, member.raw);
                args.push((field.name, checked.map_err(|fault| placed(fault, field.name, *member))?));
            }
            None if field.required => return Err(Fault::new("is required").under(field.name)),
            None => {
                if let Kind::Int { default: Some(default), .. } = field.kind {
                    args.push((field.name, Arg::Int(default)));
                }
            }
        }
    }
    Ok(())
}

/// Fails if there are unknown names. Only the first ones are listed, so that the error is not much longer than the request.
fn check_names(fields: &[Param], members: &Members<'_>) -> Read<()> {
    let is_known = |name: &str| fields.iter().any(|field| field.name == name);
    let unknown = members.iter().filter(|(name, _)| !is_known(name)).map(|(name, member)| {
        let name = shown(name);
        member.within.map_or_else(|| name.clone(), |within| format!("{within}.{name}"))
    });
    let unknown: Vec<String> = unknown.take(MAX_UNKNOWN).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
    let text = match known.as_slice() {
        [] => "is unknown; there are no parameters".to_owned(),
        known => format!("is unknown; the known names are {}", known.join(", ")),
    };
    Err(Fault::unknown(unknown, text))
}

/// Completes the path of a fault, so that it is the path that the caller wrote.
pub(crate) fn placed(fault: Fault, name: &str, member: Member<'_>) -> Fault {
    let fault = fault.under(name);
    match member.within {
        Some(within) => fault.under(within),
        None => fault,
    }
}

/// The members of an object, none of which was in an inner object.
pub(crate) fn plain(raw: &RawValue) -> Read<Members<'_>> {
    let members = members(raw.get())?.into_iter();
    Ok(members.map(|(name, raw)| (name, Member { raw, within: None })).collect())
}

fn value(kind: &'static Kind, raw: &RawValue) -> Read<Arg> {
    Ok(match kind {
        Kind::Id(kind) => Arg::Text(id(*kind, raw)?),
        Kind::Line { max, may_be_blank } => Arg::Text(line(&text(raw)?, *max, *may_be_blank)?.to_owned()),
        Kind::Lines { max, may_be_blank } => Arg::Text(lines(&text(raw)?, *max, *may_be_blank)?.to_owned()),
        Kind::Text { max } => {
            let text = text(raw)?;
            bounded(&text, *max, true)?;
            Arg::Text(text)
        }
        Kind::Word(words) => {
            let word = text(raw)?;
            if !words.contains(&word.as_str()) {
                return Err(Fault::new(format!("must be {}", words.join(" or "))));
            }
            Arg::Text(word)
        }
        Kind::FileName { max } => Arg::Text(file_name(&text(raw)?, *max)?.to_owned()),
        Kind::Branch => Arg::Text(branch(&text(raw)?)?.to_owned()),
        Kind::Command => {
            let text = text(raw)?;
            Arg::Text(line(text.strip_prefix('/').unwrap_or(&text), MAX_NAME, false)?.to_owned())
        }
        Kind::Int { min, max, .. } => Arg::Int(int(raw, *min, *max)?),
        Kind::Flag => Arg::Flag(flag(raw)?),
        Kind::Off if flag(raw)? => {
            return Err(Fault::new("must be false: a tool can be withheld, but not allowed"));
        }
        Kind::Off => Arg::Flag(false),
        Kind::Cursor => Arg::Text(cursor(raw)?),
        Kind::Directory => Arg::Text(line(&text(raw)?, MAX_LINE, false)?.to_owned()),
        Kind::Metadata { routed } => Arg::Location(metadata(raw, *routed)?),
        Kind::Object(fields) => Arg::Object(check(fields, 0, &plain(raw)?)?),
        Kind::OneOf(fields) => Arg::Object(one_of(fields, raw)?),
        Kind::Tagged(variants) => tagged(variants, raw)?,
        Kind::List { of, max, may_be_empty } => Arg::List(elements(of, *max, *may_be_empty, raw)?),
        Kind::Map { of, max } => Arg::Names(names(of, *max, raw)?),
        Kind::ModelRef => Arg::Object(model_ref(raw)?),
        Kind::Json { max } => Arg::Json(object_to_carry(*max, raw)?),
        Kind::Reply => Arg::Text(line(text(raw)?.trim(), MAX_LINE, false)?.to_owned()),
        Kind::Answers => Arg::Answers(list(raw, chosen)?),
    })
}

/// Reads the directory or workspace from the metadata. Other fields of the two objects are for other receivers and are not read.
fn metadata(raw: &RawValue, routed: Option<&'static Routing>) -> Read<Location> {
    const KNOWN: [&str; 2] = [AGENT_OBJECT, "shared"];
    let members = plain(raw)?;
    for name in KNOWN {
        if let Some(member) = members.get(name).filter(|member| !is_null(member.raw)) {
            plain(member.raw).map_err(|fault| fault.under(name))?;
        }
    }
    let unknown = members.keys().filter(|name| !KNOWN.contains(&name.as_str()));
    let unknown: Vec<String> = unknown.take(MAX_UNKNOWN).map(|name| shown(name)).collect();
    if !unknown.is_empty() {
        return Err(Fault::unknown(
            unknown,
            format!("is unknown; the known names are {}", KNOWN.join(" and ")),
        ));
    }
    match (members.get(AGENT_OBJECT).filter(|member| !is_null(member.raw)), routed) {
        (Some(member), Some(routing)) => {
            (routing.read)(member.raw).map_err(|fault| fault.under(AGENT_OBJECT))
        }
        _ => Ok(Location::default()),
    }
}

fn one_of(fields: &'static [Param], raw: &RawValue) -> Read<Args> {
    let args = check(fields, 0, &plain(raw)?)?;
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    match args.0.as_slice() {
        [_] => Ok(args),
        [] => {
            let first = names.first().copied().unwrap_or_default();
            Err(Fault::new(format!("is missing; give {}", names.join(" or "))).under(first))
        }
        [(one, _), (other, _), ..] => {
            Err(Fault::new(format!("is given together with {one}; leave one of them out")).under(other))
        }
    }
}

fn tagged(variants: &'static [Variant], raw: &RawValue) -> Read<Arg> {
    let mut members = plain(raw)?;
    let tag = members.remove("type").filter(|member| !is_null(member.raw));
    let tag = tag.ok_or_else(|| Fault::new("is required")).and_then(|member| text(member.raw));
    let variant = tag.and_then(|tag| {
        variants.iter().find(|variant| variant.tag == tag).ok_or_else(|| {
            let tags: Vec<&str> = variants.iter().map(|variant| variant.tag).collect();
            Fault::new(format!("must be {}", tags.join(" or ")))
        })
    });
    let variant = variant.map_err(|fault| fault.under("type"))?;
    Ok(Arg::Tagged(variant.tag, check(variant.fields, 0, &members)?))
}

fn elements(of: &'static Kind, max: usize, may_be_empty: bool, raw: &RawValue) -> Read<Vec<Arg>> {
    // Counts the elements first, so that a list that is too long is not read.
    if list(raw, |_| Ok(()))?.len() > max {
        return Err(Fault::new(format!("must have at most {max} elements")));
    }
    let elements = list(raw, |element| value(of, element))?;
    if elements.is_empty() && !may_be_empty {
        return Err(Fault::new("must have at least one element"));
    }
    Ok(elements)
}

fn names(of: &'static Kind, max: usize, raw: &RawValue) -> Read<Vec<String>> {
    let members = plain(raw)?;
    if members.len() > max {
        return Err(Fault::new(format!("must have at most {max} names")));
    }
    let mut names = Vec::with_capacity(members.len());
    for (name, member) in members {
        // A name with the value `null` counts as absent.
        if !is_null(member.raw) {
            let checked = line(&name, MAX_NAME, false).and_then(|_| value(of, member.raw));
            checked.map_err(|fault| fault.under(&shown(&name)))?;
            names.push(name);
        }
    }
    Ok(names)
}

fn model_ref(raw: &RawValue) -> Read<Args> {
    if !raw.get().starts_with('"') {
        return check(MODEL, 0, &plain(raw)?);
    }
    let text = text(raw)?;
    let name = ModelName::parse(line(&text, MAX_NAME + 1 + MAX_LINE, false)?);
    let name = name.filter(|name| {
        line(&name.provider, MAX_NAME, false).is_ok() && line(&name.model, MAX_LINE, false).is_ok()
    });
    let ModelName { provider, model } = name.ok_or_else(|| Fault::new("must be provider/model"))?;
    Ok(Args(vec![("providerID", Arg::Text(provider)), ("modelID", Arg::Text(model))]))
}

fn object_to_carry(max: usize, raw: &RawValue) -> Read<Json> {
    plain(raw)?;
    if raw.get().len() > max {
        return Err(Fault::new(format!("must have at most {max} bytes")));
    }
    carried_json(raw)
}

fn chosen(raw: &RawValue) -> Read<Vec<String>> {
    let mut labels = list(raw, text)?;
    labels.retain(|label| !label.trim().is_empty());
    Ok(labels)
}
