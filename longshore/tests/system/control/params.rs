//! Parameters that are generated from the method table: complete ones, and every position in them.

use std::fmt;

use longshore_wire::methods::{Kind, Method, Param};
use serde_json::{Map, Value, json};

/// The kinds of the fields in metadata.
const CARRIED: Kind = Kind::Json { max: usize::MAX };
const DIRECTORY: Kind = Kind::Directory;
const WORKSPACE: Kind = Kind::Id(longshore_wire::methods::IdKind::Workspace);
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

    /// These parameters with another value at this path, or with none.
    pub(crate) fn put(&self, params: &Value, value: Option<Value>) -> Value {
        let mut changed = params.clone();
        let Some((last, way)) = self.0.split_last() else { return value.unwrap_or_default() };
        let mut here = &mut changed;
        for step in way {
            here = match step {
                Step::Key(key) => &mut here[key.as_str()],
                Step::Index(index) => &mut here[*index],
            };
        }
        match (last, value) {
            (Step::Key(key), Some(value)) => here[key.as_str()] = value,
            (Step::Index(index), Some(value)) => here[*index] = value,
            (Step::Key(key), None) => {
                here.as_object_mut().and_then(|members| members.remove(key)).expect("it is there");
            }
            (Step::Index(_), None) => panic!("elements are not taken away"),
        }
        changed
    }

    pub(crate) fn get<'a>(&self, params: &'a Value) -> &'a Value {
        self.0.iter().fold(params, |here, step| match step {
            Step::Key(key) => &here[key.as_str()],
            Step::Index(index) => &here[*index],
        })
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

/// What the table says about a position.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// An object that has only the names of the table.
    Names,
    /// A required field.
    Needed,
    /// A field that another field requires.
    Paired,
    /// Exactly one of these fields is required.
    OneOf(&'static [Param]),
    Value(&'static Kind),
}

#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) at: Path,
    pub(crate) rule: Rule,
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
        Kind::Id(kind) => json!(format!("{}_good", kind.prefix())),
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
    let is_there = |field: &&Param| value.get(field.name).is_some();
    positions.push(Position { at: at.clone(), rule: Rule::Names });
    for field in fields.iter().filter(is_there) {
        let here = at.key(field.name);
        if field.required {
            positions.push(Position { at: here.clone(), rule: Rule::Needed });
        } else if field.with.is_some() {
            positions.push(Position { at: here.clone(), rule: Rule::Paired });
        }
        of_value(&here, &field.kind, &value[field.name], positions);
    }
}

fn of_value(at: &Path, kind: &'static Kind, value: &Value, positions: &mut Vec<Position>) {
    let mut found = |at: Path, rule: Rule| positions.push(Position { at, rule });
    found(at.clone(), Rule::Value(kind));
    match kind {
        Kind::Metadata { routed } => {
            let opencode = at.key("opencode");
            found(at.clone(), Rule::Names);
            found(at.key("shared"), Rule::Value(&CARRIED));
            found(opencode.clone(), Rule::Value(&CARRIED));
            if *routed {
                found(opencode.key("directory"), Rule::Value(&DIRECTORY));
                found(opencode.key("workspace"), Rule::Value(&CARRIED));
                found(opencode.key("workspace").key("id"), Rule::Value(&WORKSPACE));
            }
        }
        Kind::ModelRef => {
            found(at.clone(), Rule::Names);
            for (name, kind) in [("providerID", &NAME), ("modelID", &LINE)] {
                found(at.key(name), Rule::Needed);
                found(at.key(name), Rule::Value(kind));
            }
        }
        Kind::Object(fields) => of_object(at, fields, value, positions),
        Kind::OneOf(fields) => {
            found(at.clone(), Rule::OneOf(fields));
            of_object(at, fields, value, positions);
        }
        Kind::Tagged(variants) => {
            found(at.key("type"), Rule::Needed);
            found(at.key("type"), Rule::Value(&TAG));
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

/// Complete parameters with one mistake.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    pub(crate) params: Value,
    /// The wrong field.
    pub(crate) field: String,
    pub(crate) why: &'static str,
}

/// A value of every JSON type. The string is valid only for free text.
fn of_every_type() -> [Value; 6] {
    [json!(true), json!(7), json!(7.5), json!("nonsense"), json!([]), json!({})]
}

/// Every mistake that the table defines: unknown names, missing names, values of another type, and values just out of
/// bounds.
pub(crate) fn mistakes(method: &'static Method) -> Vec<Mistake> {
    let mut all = Vec::new();
    for complete in complete_params(method) {
        for Position { at, rule } in positions(method, &complete) {
            let mut wrong = |why: &'static str, field: &Path, put: &Path, value: Option<Value>| {
                all.push(Mistake { params: put.put(&complete, value), field: field.to_string(), why });
            };
            match rule {
                Rule::Names => {
                    let unknown = at.key("nonsense");
                    wrong("a name that is not known", &unknown, &unknown, Some(json!(1)));
                }
                Rule::Needed => {
                    wrong("nothing where something must be", &at, &at, None);
                    wrong("null where something must be", &at, &at, Some(Value::Null));
                }
                Rule::Paired => {
                    wrong("one of two that go together", &at, &at, None);
                    wrong("one of two that go together", &at, &at, Some(Value::Null));
                }
                Rule::OneOf(fields) => {
                    let first = at.key(fields[0].name);
                    wrong("none of several", &first, &at, Some(json!({})));
                    let both: Map<String, Value> = fields
                        .iter()
                        .map(|field| (field.name.to_owned(), valid_value(&field.kind, 0)))
                        .collect();
                    let second = at.key(fields[1].name);
                    wrong("several where one must be", &second, &at, Some(both.into()));
                }
                Rule::Value(kind) => {
                    for other in of_every_type().into_iter().filter(|other| !takes(kind, other)) {
                        wrong("another type", &at, &at, Some(other));
                    }
                    for beyond in out_of_bounds(kind, at.get(&complete)) {
                        wrong("out of bounds", &at, &at, Some(beyond));
                    }
                    if let Kind::Answers = kind {
                        wrong("another type", &at.index(0), &at, Some(json!([7])));
                        wrong("another type", &at.index(0).index(0), &at, Some(json!([[7]])));
                    }
                }
            }
        }
    }
    all
}

/// Whether a value of this type is valid here.
fn takes(kind: &Kind, value: &Value) -> bool {
    match kind {
        Kind::Line { .. }
        | Kind::Lines { .. }
        | Kind::Text { .. }
        | Kind::FileName { .. }
        | Kind::Branch
        | Kind::Command
        | Kind::Cursor
        | Kind::Directory => value.is_string(),
        Kind::Id(kind) => kind.prefix().is_empty() && value.is_string(),
        // The string is none of the allowed words.
        Kind::Word(_) | Kind::Reply => false,
        Kind::Int { .. } => value.is_i64(),
        Kind::Flag | Kind::Off => value.is_boolean(),
        Kind::List { .. } | Kind::Answers => value.is_array(),
        Kind::Metadata { .. }
        | Kind::Object(_)
        | Kind::OneOf(_)
        | Kind::Tagged(_)
        | Kind::Map { .. }
        | Kind::Json { .. }
        | Kind::ModelRef => value.is_object(),
    }
}

/// Values that are just too small, too large, too long or too many. Texts that are too long for a request are left out.
fn out_of_bounds(kind: &'static Kind, good: &Value) -> Vec<Value> {
    const LARGEST: usize = 512 * 1024;
    let too_long = |max: usize| if max < LARGEST { vec![json!("a".repeat(max + 1))] } else { Vec::new() };
    match kind {
        Kind::Int { min, max, .. } => {
            let beyond = [min - 1, max + 1];
            beyond.into_iter().flat_map(|number| [json!(number), json!(number.to_string())]).collect()
        }
        Kind::Line { max, .. } | Kind::Lines { max, .. } | Kind::Text { max } | Kind::FileName { max } => {
            too_long(*max)
        }
        Kind::Id(kind) => vec![json!(format!("{:a<129}", kind.prefix()))],
        Kind::Command => too_long(longshore_wire::methods::MAX_NAME),
        Kind::Branch => too_long(longshore_wire::methods::MAX_BRANCH),
        Kind::Cursor => too_long(longshore_wire::methods::MAX_CURSOR),
        Kind::Directory => too_long(longshore_wire::methods::MAX_LINE),
        Kind::Off => vec![json!(true), json!("yes")],
        Kind::List { max, may_be_empty, .. } => {
            let one = good[0].clone();
            let mut beyond = vec![Value::from(vec![one; max + 1])];
            if !may_be_empty {
                beyond.push(json!([]));
            }
            beyond
        }
        Kind::Map { max, .. } => {
            let one = good.as_object().and_then(|members| members.values().next()).expect("a whole map");
            let many = (0..=*max).map(|number| (format!("name{number}"), one.clone()));
            vec![Value::Object(many.collect())]
        }
        Kind::Json { max } if *max < LARGEST => vec![json!({"good": "a".repeat(*max)})],
        _ => Vec::new(),
    }
}
