//! Parameters that are generated from the method table: complete ones, and every position in them.

use std::fmt;

use longshore_wire::methods::{Kind, Method, Param};
use serde_json::{Value, json};

/// The kinds of the fields in metadata.
const DIRECTORY: Kind = Kind::Directory;
const WORKSPACE: Kind = Kind::Id(longshore_wire::opencode::ids::WORKSPACE);
const NAME: Kind = Kind::Line { max: longshore_wire::methods::MAX_NAME, may_be_blank: false };
const LINE: Kind = Kind::Line { max: longshore_wire::methods::MAX_LINE, may_be_blank: false };
/// The `type` of a tagged object. Its values are elsewhere in the table.
const TAG: Kind = Kind::Word(&[]);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// A path into parameters, displayed as in errors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// These parameters with another value at this path.
    pub(crate) fn put(&self, params: &Value, value: Value) -> Value {
        let mut changed = params.clone();
        let here = self.0.iter().fold(&mut changed, |here, step| match step {
            Step::Key(key) => &mut here[key.as_str()],
            Step::Index(index) => &mut here[*index],
        });
        *here = value;
        changed
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if index == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A position in parameters, and the kind of its value.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) at: Path,
    pub(crate) kind: &'static Kind,
}

/// Complete parameters of a method: every optional field, once for each of the fields that exclude each other.
pub(crate) fn complete_params(method: &'static Method) -> Vec<Value> {
    let mut complete_params = vec![object(method.params, 0)];
    for choice in 1.. {
        let another = object(method.params, choice);
        if complete_params.contains(&another) {
            return complete_params;
        }
        complete_params.push(another);
    }
    complete_params
}

fn object(fields: &'static [Param], choice: usize) -> Value {
    let members = fields.iter().map(|field| (field.name.to_owned(), valid_value(&field.kind, choice)));
    Value::Object(members.collect())
}

fn valid_value(kind: &'static Kind, choice: usize) -> Value {
    match kind {
        Kind::Id(kind) => json!(format!("{}_good", kind.prefix)),
        Kind::Word(words) => json!(words[0]),
        Kind::Int { min, .. } => json!(min),
        Kind::Flag => json!(true),
        Kind::Off => json!(false),
        Kind::Reply => json!("once"),
        Kind::Answers => json!([["good"]]),
        Kind::Json { .. } => json!({"good": 1}),
        Kind::ModelRef => json!({"providerID": "good", "modelID": "good"}),
        Kind::Metadata { .. } => {
            json!({"opencode": {"directory": "good", "workspace": {"id": "wrk_good"}}, "shared": {}})
        }
        Kind::Object(fields) => object(fields, choice),
        Kind::OneOf(fields) => {
            let field = &fields[choice % fields.len()];
            json!({field.name: valid_value(&field.kind, choice)})
        }
        Kind::Tagged(variants) => tagged(variants[0].tag, variants[0].fields, choice),
        // One element of each type.
        Kind::List { of: Kind::Tagged(variants), .. } => {
            variants.iter().map(|variant| tagged(variant.tag, variant.fields, choice)).collect()
        }
        Kind::List { of, .. } => json!([valid_value(of, choice)]),
        Kind::Map { of, .. } => json!({"good": valid_value(of, choice)}),
        Kind::Line { .. }
        | Kind::Lines { .. }
        | Kind::Text { .. }
        | Kind::FileName { .. }
        | Kind::Branch
        | Kind::Command
        | Kind::Cursor
        | Kind::Directory => json!("good"),
    }
}

fn tagged(tag: &str, fields: &'static [Param], choice: usize) -> Value {
    let mut value = object(fields, choice);
    value["type"] = json!(tag);
    value
}

/// Every position of complete parameters.
pub(crate) fn positions(method: &'static Method, complete: &Value) -> Vec<Position> {
    let mut positions = Vec::new();
    of_object(&Path::default(), method.params, complete, &mut positions);
    positions
}

fn of_object(at: &Path, fields: &'static [Param], value: &Value, positions: &mut Vec<Position>) {
    for field in fields.iter().filter(|field| value.get(field.name).is_some()) {
        of_value(&at.key(field.name), &field.kind, &value[field.name], positions);
    }
}

fn of_value(at: &Path, kind: &'static Kind, value: &Value, positions: &mut Vec<Position>) {
    let mut found = |at: Path, kind: &'static Kind| positions.push(Position { at, kind });
    found(at.clone(), kind);
    match kind {
        Kind::Metadata { routed: Some(_) } => {
            found(at.key("opencode").key("directory"), &DIRECTORY);
            found(at.key("opencode").key("workspace").key("id"), &WORKSPACE);
        }
        Kind::ModelRef => {
            found(at.key("providerID"), &NAME);
            found(at.key("modelID"), &LINE);
        }
        Kind::Object(fields) | Kind::OneOf(fields) => of_object(at, fields, value, positions),
        Kind::Tagged(variants) => {
            found(at.key("type"), &TAG);
            let variant = variants.iter().find(|variant| value["type"] == variant.tag).expect("a good tag");
            of_object(at, variant.fields, value, positions);
        }
        Kind::List { of, .. } => {
            for (index, element) in value.as_array().into_iter().flatten().enumerate() {
                of_value(&at.index(index), of, element, positions);
            }
        }
        Kind::Map { of, .. } => {
            for (name, inner) in value.as_object().into_iter().flatten() {
                of_value(&at.key(name), of, inner, positions);
            }
        }
        _ => {}
    }
}
