//! Generates parameters for property tests from the table: valid ones, and every change that the table permits or forbids.
//!
//! Two things are left out because they have separate tests: the `query` of 0.3, and models that are written as text.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use crate::methods::{IdKind, Kind, MAX_BRANCH, MAX_CURSOR, MAX_LINE, MAX_NAME, MODEL, Param, Variant};

/// A step on the path to a value.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// One change to valid parameters.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    at: Vec<Step>,
    /// The new value. `None`: the value is removed.
    pub(crate) put: Option<Value>,
    /// The field that the change makes invalid. `None`: the parameters stay valid.
    pub(crate) breaks: Option<String>,
}

impl Change {
    pub(crate) fn apply(&self, params: &Value) -> Value {
        let mut changed = params.clone();
        let (last, path) = self.at.split_last().expect("a change has a path");
        let mut here = &mut changed;
        for step in path {
            here = match step {
                Step::Key(key) => here.get_mut(key),
                Step::Index(index) => here.get_mut(index),
            }
            .expect("the path exists");
        }
        match (last, &self.put) {
            (Step::Key(key), Some(value)) => here[key.as_str()] = value.clone(),
            (Step::Index(index), Some(value)) => here[*index] = value.clone(),
            (Step::Key(key), None) => drop(here.as_object_mut().and_then(|object| object.shift_remove(key))),
            (Step::Index(_), None) => panic!("elements are not removed"),
        }
        changed
    }
}

/// Generates valid parameters with some of the optional ones.
pub(crate) fn some(fields: &'static [Param]) -> BoxedStrategy<Value> {
    object(fields, false)
}

/// Generates valid parameters with all optional ones.
pub(crate) fn full(fields: &'static [Param]) -> BoxedStrategy<Value> {
    object(fields, true)
}

fn object(fields: &'static [Param], is_full: bool) -> BoxedStrategy<Value> {
    let values: Vec<BoxedStrategy<Option<Value>>> = fields
        .iter()
        .map(|field| {
            let good = valid(&field.kind, is_full);
            if is_full || field.required {
                good.prop_map(Some).boxed()
            } else {
                prop_oneof![good.prop_map(Some), Just(None), Just(Some(Value::Null))].boxed()
            }
        })
        .collect();
    let built = move |values: Vec<Option<Value>>| {
        let mut built = Map::new();
        for (field, value) in fields.iter().zip(values) {
            built.extend(value.map(|value| (field.name.to_owned(), value)));
        }
        // A parameter that requires another one is left out together with it.
        for field in fields {
            let is_alone = field.with.is_some_and(|other| built.get(other).is_none_or(Value::is_null));
            if is_alone {
                built.shift_remove(field.name);
            }
        }
        Value::Object(built)
    };
    values.prop_map(built).boxed()
}

fn valid(kind: &'static Kind, is_full: bool) -> BoxedStrategy<Value> {
    let text = |pattern: &str| {
        proptest::string::string_regex(pattern).expect("a pattern").prop_map(Value::from).boxed()
    };
    match kind {
        Kind::Id(kind) => text(&format!("{}[A-Za-z0-9_.:-]{{1,16}}", kind.prefix)),
        Kind::Line { .. } => text("[a-z][a-zA-Z0-9 äé/%?#.]{0,12}"),
        Kind::Lines { .. } => text("[a-z][a-z\n\t äé]{0,12}"),
        Kind::Text { .. } => text("(?s).{0,12}"),
        Kind::Word(words) => select(words.to_vec()).prop_map(Value::from).boxed(),
        Kind::FileName { .. } => text("[a-z][a-z0-9 _.-]{0,12}"),
        Kind::Branch => text("[a-z]{1,6}(/[a-z0-9-]{1,6})?"),
        Kind::Command => text("/?[a-z][a-z/-]{0,8}"),
        Kind::Int { min, max, .. } => {
            let number = *min..=(*max).min(min.saturating_add(1000));
            prop_oneof![
                number.clone().prop_map(Value::from),
                number.prop_map(|number| Value::from(number.to_string())),
            ]
            .boxed()
        }
        Kind::Flag => {
            let words = ["true", "1", "yes", "on", "false", "0", "no", "off", "Yes", "FALSE"];
            prop_oneof![any::<bool>().prop_map(Value::from), select(words.to_vec()).prop_map(Value::from)]
                .boxed()
        }
        Kind::Off => select(vec![json!(false), json!("no"), json!("0")]).boxed(),
        Kind::Cursor => text("[A-Za-z0-9_=-]{1,20}"),
        Kind::Directory => text("[a-z./][a-z0-9/_ -]{0,12}"),
        Kind::Metadata { .. } => Just(json!({
            "opencode": {"directory": "a", "workspace": {"id": "wrk_1", "other": 1}, "other": [1]},
            "shared": {"other": 1},
        }))
        .boxed(),
        Kind::Object(fields) => object(fields, is_full),
        Kind::OneOf(fields) => {
            let one = |field: &'static Param| {
                valid(&field.kind, is_full).prop_map(|value| json!({field.name: value})).boxed()
            };
            proptest::strategy::Union::new(fields.iter().map(one)).boxed()
        }
        Kind::Tagged(variants) => {
            proptest::strategy::Union::new(variants.iter().map(|variant| tagged(variant, is_full))).boxed()
        }
        // One element of each type, so that each type is changed.
        Kind::List { of: Kind::Tagged(variants), .. } if is_full => {
            let each: Vec<_> = variants.iter().map(|variant| tagged(variant, true)).collect();
            each.prop_map(Value::from).boxed()
        }
        Kind::List { of, may_be_empty, .. } => {
            let least = usize::from(is_full || !may_be_empty);
            vec(valid(of, is_full), least..3).prop_map(Value::from).boxed()
        }
        Kind::Map { of, .. } => {
            let least = usize::from(is_full);
            let pairs = vec(("[a-z*_]{1,8}", valid(of, is_full)), least..3);
            pairs.prop_map(|pairs| Value::Object(pairs.into_iter().collect())).boxed()
        }
        Kind::ModelRef if is_full => object(MODEL, true),
        Kind::ModelRef => prop_oneof![object(MODEL, true), text("[a-z]{1,6}/[a-z/]{0,5}[a-z]")].boxed(),
        Kind::Json { .. } => Just(json!({"a": [1.5, {"b": null}]})).boxed(),
        Kind::Reply => select(vec!["once", " Always\n", "REJECT", "proceed_once", "Allow *"])
            .prop_map(Value::from)
            .boxed(),
        Kind::Answers => vec(vec("(?s).{0,6}", 0..3), 1..3).prop_map(|answers| json!(answers)).boxed(),
    }
}

fn tagged(variant: &'static Variant, is_full: bool) -> BoxedStrategy<Value> {
    let with_tag = |mut value: Value| {
        value["type"] = json!(variant.tag);
        value
    };
    object(variant.fields, is_full).prop_map(with_tag).boxed()
}

/// All changes to these full parameters for which the table has a rule.
pub(crate) fn changes(fields: &'static [Param], params: &Value) -> Vec<Change> {
    let mut changes = Changes { all: Vec::new(), at: Vec::new() };
    changes.of_object(fields, params);
    changes.all
}

struct Changes {
    all: Vec<Change>,
    at: Vec<Step>,
}

impl Changes {
    fn push(&mut self, put: Option<Value>, breaks: Option<String>) {
        self.all.push(Change { at: self.at.clone(), put, breaks });
    }

    fn wrong(&mut self, value: Value) {
        let here = self.path();
        self.push(Some(value), Some(here));
    }

    fn right(&mut self, value: Value) {
        self.push(Some(value), None);
    }

    /// The path in the form of error messages.
    fn path(&self) -> String {
        self.at.iter().fold(String::new(), |path, step| match step {
            Step::Index(index) => format!("{path}[{index}]"),
            Step::Key(key) if path.is_empty() => key.clone(),
            Step::Key(key) => format!("{path}.{key}"),
        })
    }

    fn below(&mut self, key: &str, visit: impl FnOnce(&mut Self)) {
        self.at.push(Step::Key(key.to_owned()));
        visit(self);
        self.at.pop();
    }

    fn unknown_name(&mut self) {
        self.below("nonsense", |here| here.wrong(json!(1)));
    }

    fn of_object(&mut self, fields: &'static [Param], value: &Value) {
        self.unknown_name();
        for field in fields {
            let Some(value) = value.get(field.name) else { continue };
            self.below(field.name, |here| {
                for put in [None, Some(Value::Null)] {
                    let breaks = (field.required || field.with.is_some()).then(|| here.path());
                    here.push(put, breaks);
                }
                here.of(&field.kind, value);
            });
        }
    }

    fn of(&mut self, kind: &'static Kind, value: &Value) {
        for other in [json!(true), json!(7), json!(7.5), json!("\u{1}"), json!([]), json!({})] {
            if !takes(kind, &other) {
                self.wrong(other);
            }
        }
        match kind {
            Kind::Id(kind) => self.of_id(*kind),
            Kind::Line { max, may_be_blank } => self.of_text(*max, *may_be_blank, "a\nb"),
            Kind::Lines { max, may_be_blank } => self.of_text(*max, *may_be_blank, "a\u{0}b"),
            Kind::Text { max } => {
                self.lengths("", *max);
                self.right(json!(""));
            }
            Kind::Word(_) => self.wrong(json!("nonsense")),
            Kind::FileName { max } => {
                self.of_text(*max, false, "a\nb");
                self.wrong_texts(&["-a", ".a", "..", "a/b", "../a", "a\\b"]);
            }
            Kind::Branch => {
                self.of_text(MAX_BRANCH, false, "a\nb");
                self.wrong_texts(&[
                    "-a", "a b", "a..b", "a//b", "/a", "a/", "a.lock", "a/.b", "a~1", "@", "a@{0}", "a.",
                ]);
            }
            Kind::Command => {
                self.of_text(MAX_NAME, false, "a\nb");
                self.wrong_texts(&["/", "/ "]);
            }
            Kind::Int { min, max, .. } => {
                for edge in [*min, *max] {
                    self.right(json!(edge));
                    self.right(json!(edge.to_string()));
                }
                for beyond in [min - 1, max + 1] {
                    self.wrong(json!(beyond));
                    self.wrong(json!(beyond.to_string()));
                }
                self.wrong_texts(&["", "x", "1x", "true"]);
            }
            Kind::Flag => self.wrong_texts(&["", "maybe", "2"]),
            Kind::Off => {
                self.wrong(json!(true));
                self.wrong_texts(&["", "maybe", "yes"]);
            }
            Kind::Cursor => {
                self.lengths("", MAX_CURSOR);
                self.wrong_texts(&["", "a b", "a/b", "a?b", "a%2f"]);
            }
            Kind::Directory | Kind::Reply => self.of_text(MAX_LINE, false, "a\nb"),
            Kind::Metadata { routed } => self.of_metadata(routed.is_some()),
            Kind::Object(fields) => self.of_object(fields, value),
            Kind::ModelRef => self.of_object(MODEL, value),
            Kind::OneOf(fields) => self.of_one_of(fields, value),
            Kind::Tagged(variants) => self.of_tagged(variants, value),
            Kind::List { of, max, may_be_empty } => self.of_list(of, *max, *may_be_empty, value),
            Kind::Map { of, max } => self.of_map(of, *max, value),
            Kind::Json { max } => {
                let with = |bytes: usize| json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())});
                self.right(with(*max));
                self.wrong(with(max + 1));
            }
            Kind::Answers => self.of_answers(value),
        }
    }

    fn wrong_texts(&mut self, texts: &[&str]) {
        for text in texts {
            self.wrong(json!(text));
        }
    }

    /// Adds a text of the maximum length, and one that is too long. Very large limits have a separate test.
    fn lengths(&mut self, prefix: &str, max: usize) {
        const LARGEST: usize = 2 * 1024 * 1024;
        if max <= LARGEST {
            let text = |bytes: usize| json!(format!("{prefix}{}", "a".repeat(bytes - prefix.len())));
            self.right(text(max));
            self.wrong(text(max + 1));
        }
    }

    fn of_text(&mut self, max: usize, may_be_blank: bool, bad: &str) {
        self.lengths("", max);
        self.wrong(json!(bad));
        for blank in ["", " "] {
            if may_be_blank {
                self.right(json!(blank));
            } else {
                self.wrong(json!(blank));
            }
        }
    }

    fn of_id(&mut self, kind: IdKind) {
        let prefix = kind.prefix;
        self.lengths(prefix, MAX_NAME);
        for trick in ["/", "/../x", "?a", "#a", "%2f", "%2e%2e", "\u{0}", "ü", " a"] {
            self.wrong(json!(format!("{prefix}_a{trick}")));
        }
        self.wrong(json!(""));
        if !prefix.is_empty() {
            self.wrong_texts(&["other_1", &prefix.to_uppercase()]);
        }
    }

    fn of_metadata(&mut self, is_routed: bool) {
        self.unknown_name();
        self.below("shared", |here| here.wrong(json!("x")));
        self.below("opencode", |here| {
            here.wrong(json!([]));
            // A field that is not read may have any value.
            let unread_or_wrong = |here: &mut Self, value: Value| {
                if is_routed { here.wrong(value) } else { here.right(value) }
            };
            here.below("directory", |here| {
                for value in [json!(7), json!("a\nb"), json!("a".repeat(MAX_LINE + 1))] {
                    unread_or_wrong(here, value);
                }
                here.right(json!("a".repeat(MAX_LINE)));
                here.right(json!(" "));
            });
            here.below("workspace", |here| {
                unread_or_wrong(here, json!(7));
                here.below("id", |here| {
                    for value in
                        [json!(7), json!("mine"), json!("wrk_/.."), json!(format!("wrk{}", "a".repeat(126)))]
                    {
                        unread_or_wrong(here, value);
                    }
                    here.right(json!(""));
                });
            });
        });
    }

    fn of_one_of(&mut self, fields: &'static [Param], value: &Value) {
        self.unknown_name();
        let first = fields.first().expect("there is at least one alternative").name;
        self.below(first, |here| {
            let here_path = here.path();
            here.at.pop();
            here.push(Some(json!({})), Some(here_path));
            here.at.push(Step::Key(first.to_owned()));
        });
        for field in fields {
            let Some(value) = value.get(field.name) else { continue };
            self.below(field.name, |here| here.of(&field.kind, value));
            for other in fields.iter().filter(|other| other.name != field.name) {
                // Of two such parameters, the later one in the table is refused.
                let order = |name: &str| fields.iter().position(|field| field.name == name);
                let later = if order(other.name) > order(field.name) { other.name } else { field.name };
                let mut breaks = String::new();
                self.below(later, |here| breaks = here.path());
                self.below(other.name, |here| here.push(Some(json!("a")), Some(breaks)));
            }
        }
    }

    fn of_tagged(&mut self, variants: &'static [Variant], value: &Value) {
        self.below("type", |here| {
            let path = here.path();
            here.push(None, Some(path));
            for wrong in [Value::Null, json!(7), json!("nonsense")] {
                here.wrong(wrong);
            }
        });
        let variant = variants.iter().find(|variant| value["type"] == variant.tag).expect("a valid value");
        self.of_object(variant.fields, value);
    }

    fn of_list(&mut self, of: &'static Kind, max: usize, may_be_empty: bool, value: &Value) {
        let elements = value.as_array().expect("a valid value");
        let first = elements.first().expect("full values have an element in each list");
        self.right(Value::from(vec![first.clone(); max]));
        self.wrong(Value::from(vec![first.clone(); max + 1]));
        let empty = Value::Array(Vec::new());
        if may_be_empty {
            self.right(empty);
        } else {
            self.wrong(empty);
        }
        for (index, element) in elements.iter().enumerate() {
            self.at.push(Step::Index(index));
            self.wrong(Value::Null);
            self.of(of, element);
            self.at.pop();
        }
    }

    fn of_map(&mut self, of: &'static Kind, max: usize, value: &Value) {
        let members = value.as_object().expect("a valid value");
        let (name, first) = members.iter().next().expect("full values have a member in each map");
        let many = |count: usize| {
            Value::Object((0..count).map(|index| (format!("tool{index}"), first.clone())).collect())
        };
        self.right(many(max));
        self.wrong(many(max + 1));
        self.below(name, |here| {
            here.push(Some(Value::Null), None);
            here.of(of, first);
        });
        self.below(&"a".repeat(MAX_NAME), |here| here.right(first.clone()));
        self.below(" ", |here| here.wrong(first.clone()));
        // Error messages contain only the beginning of a long name.
        let mut shown = String::new();
        self.below(&"a".repeat(MAX_NAME), |here| shown = here.path());
        self.below(&"a".repeat(MAX_NAME + 1), |here| here.push(Some(first.clone()), Some(shown)));
    }

    fn of_answers(&mut self, value: &Value) {
        self.right(json!([]));
        self.right(json!([[]]));
        for index in 0..value.as_array().map_or(0, Vec::len) {
            self.at.push(Step::Index(index));
            for wrong in [Value::Null, json!("A"), json!({}), json!(7)] {
                self.wrong(wrong);
            }
            self.at.push(Step::Index(0));
            let path = self.path();
            self.at.pop();
            self.push(Some(json!([7, "A"])), Some(path));
            self.at.pop();
        }
    }
}

/// Whether a value of this JSON type may be valid for the kind.
fn takes(kind: &Kind, value: &Value) -> bool {
    match kind {
        Kind::Id(_)
        | Kind::Line { .. }
        | Kind::Lines { .. }
        | Kind::Word(_)
        | Kind::FileName { .. }
        | Kind::Branch
        | Kind::Command
        | Kind::Cursor
        | Kind::Directory
        | Kind::Reply => false,
        Kind::Text { .. } => value.is_string(),
        // Another test checks whether the number is within its limits.
        Kind::Int { .. } => value.is_i64(),
        Kind::Flag | Kind::Off => value.is_boolean(),
        Kind::Metadata { .. }
        | Kind::Object(_)
        | Kind::OneOf(_)
        | Kind::Tagged(_)
        | Kind::Map { .. }
        | Kind::Json { .. }
        | Kind::ModelRef => value.is_object(),
        Kind::List { .. } | Kind::Answers => value.is_array(),
    }
}
