//! Describes extension methods, their parameters and their errors for the cards, the contract documents (wire contract and
//! compatibility profile) and the `OpenAPI` document.

use longshore_model::ErrorKind;
use serde_json::{Map, Value, json};

use super::deployment::Deployment;
use crate::extension::Extension;
use crate::methods::{self, Effect, Kind, Method, Param, Switch, Variant};
use crate::surface::ProtocolVersion;
use crate::{v1, v03};

/// The served methods of an extension.
pub(crate) fn of_extension(
    deployment: &Deployment,
    extension: Extension,
) -> impl Iterator<Item = &'static Method> {
    methods::enabled(deployment).filter(move |method| method.extension == extension)
}

/// The names of an extension's methods by their keys in the card.
pub(crate) fn names(deployment: &Deployment, extension: Extension) -> Map<String, Value> {
    of_extension(deployment, extension).map(named).collect()
}

/// The names of the methods with this effect on the agent.
pub(crate) fn names_by_effect(
    deployment: &Deployment,
    extension: Extension,
    effect: Effect,
) -> Map<String, Value> {
    of_extension(deployment, extension).filter(|method| method.effect == effect).map(named).collect()
}

fn named(method: &Method) -> (String, Value) {
    (method.key.to_owned(), json!(method.name))
}

/// An entry for each of the extension's methods that are disabled until a setting enables them. An entry has only the fields
/// `enabled_by_default` and `config_key`, because some clients refuse any other field.
pub(crate) fn flags(deployment: &Deployment, extension: Extension) -> Map<String, Value> {
    let flag = |switch: Switch| json!({"enabled_by_default": false, "config_key": switch.toggle()});
    switched(deployment, extension).map(|(name, switch)| (name.to_owned(), flag(switch))).collect()
}

/// The capabilities that a credential needs for the methods with a switch.
pub(crate) fn capabilities(deployment: &Deployment, extension: Extension) -> Map<String, Value> {
    switched(deployment, extension)
        .map(|(name, switch)| (name.to_owned(), json!(switch.capability().as_str())))
        .collect()
}

/// The additional capabilities that parameters of served methods need. Leaves out disabled parameters.
pub(crate) fn parameter_capabilities(deployment: &Deployment, extension: Extension) -> Map<String, Value> {
    let needs = of_extension(deployment, extension).filter_map(|method| {
        let needs = method.param_switches().into_iter().filter(|(_, switch)| switch.is_on(deployment));
        let words: Map<String, Value> =
            needs.map(|(path, switch)| (path, json!(switch.capability().as_str()))).collect();
        (!words.is_empty()).then(|| (method.name.to_owned(), Value::Object(words)))
    });
    needs.collect()
}

fn switched(deployment: &Deployment, extension: Extension) -> impl Iterator<Item = (&'static str, Switch)> {
    let methods = methods::offered(deployment).filter(move |method| method.extension == extension);
    methods.filter_map(|method| Some((method.name, method.switch?)))
}

/// The contract of each served method of an extension.
pub(crate) fn contracts(
    deployment: &Deployment,
    version: ProtocolVersion,
    extension: Extension,
) -> Map<String, Value> {
    let contract = |method: &Method| (method.name.to_owned(), contract(deployment, version, method));
    of_extension(deployment, extension).map(contract).collect()
}

fn contract(deployment: &Deployment, version: ProtocolVersion, method: &Method) -> Value {
    let mut names = Names::default();
    for param in method.params {
        names.add("", param, true, deployment);
    }
    let mut params = Map::new();
    for (key, names) in [("required", names.required), ("optional", names.optional), ("one_of", names.one_of)]
    {
        if !names.is_empty() {
            params.insert(key.to_owned(), json!(names));
        }
    }
    if method.paged {
        params.insert("unsupported".to_owned(), json!(methods::OTHER_PAGING));
    }
    let mut result = json!({"fields": method.result.fields()});
    if let Some(items_type) = method.result.items_type(version) {
        result["items_type"] = json!(items_type);
    }
    let mut contract = json!({"params": params, "result": result, "notification_response_status": 204});
    if let Some(variants) = parts(method) {
        contract["request_parts"] = request_parts(method, variants);
        if variants.iter().any(|variant| variant.tag == "subtask") {
            contract["subtask_support"] = subtask_support(&deployment.agent_name);
        }
    }
    contract
}

/// The names of parameters as paths, such as `request.model` for a field of the object `request`.
#[derive(Default)]
struct Names {
    required: Vec<String>,
    optional: Vec<String>,
    one_of: Vec<String>,
}

impl Names {
    /// Adds a parameter. `needed`: whether the enclosing object is required.
    fn add(&mut self, prefix: &str, param: &Param, needed: bool, deployment: &Deployment) {
        if param.switch.is_some_and(|switch| !switch.is_on(deployment)) {
            return;
        }
        let name = format!("{prefix}{}", param.name);
        let needed = needed && param.required;
        match param.kind {
            // Only the first level is expanded: the parts of a prompt have a separate entry, and a model counts as a single value.
            Kind::Object(fields) if prefix.is_empty() => {
                for field in fields {
                    self.add(&format!("{name}."), field, needed, deployment);
                }
            }
            Kind::OneOf(fields) => {
                self.one_of.extend(fields.iter().map(|field| format!("{name}.{}", field.name)));
            }
            _ if needed => self.required.push(name),
            _ => self.optional.push(name),
        }
    }
}

/// The kinds of parts that a request may have.
fn parts(method: &Method) -> Option<&'static [Variant]> {
    let request = method.params.iter().find_map(|param| match param.kind {
        Kind::Object(fields) => Some(fields),
        _ => None,
    })?;
    request.iter().find_map(|field| match field.kind {
        Kind::List { of: Kind::Tagged(variants), .. } => Some(*variants),
        _ => None,
    })
}

fn request_parts(method: &Method, variants: &[Variant]) -> Value {
    let tags: Vec<&str> = variants.iter().map(|variant| variant.tag).collect();
    let contract = |variant: &Variant| {
        let names = |required: bool| -> Vec<&str> {
            let fields = variant.fields.iter().filter(|field| field.required == required);
            fields.map(|field| field.name).collect()
        };
        let mut contract = json!({"required": names(true)});
        if !names(false).is_empty() {
            contract["optional"] = json!(names(false));
        }
        (variant.tag.to_owned(), contract)
    };
    json!({
        "items_type": format!("{}Part[]", methods::pascal_case(method.key)),
        "type_field": "type",
        "accepted_types": tags,
        "part_contracts": variants.iter().map(contract).collect::<Map<_, _>>(),
    })
}

fn subtask_support(agent: &str) -> Value {
    json!({
        "support_level": "passthrough-compatible",
        "invocation_path": "request.parts[]",
        "part_type": "subtask",
        "subagent_selector_field": "request.parts[].agent",
        "execution_model": "upstream-provider-private-subagent-runtime",
        "notes": [
            format!("{agent} runs the sub-agent that the part names; the agent of the session continues with its result."),
            "The work of a sub-agent is a task of its own, a child of the task that the prompt began.",
            format!("A sub-agent that {agent} does not have is refused."),
        ],
    })
}

/// The error code of a kind in a version, and the word by which clients recognize the error.
pub(crate) fn code(version: ProtocolVersion, kind: ErrorKind) -> (i32, &'static str) {
    match version {
        ProtocolVersion::V1 => {
            let row = v1::error::row(kind);
            (row.code, row.reason)
        }
        ProtocolVersion::V03 => {
            let row = v03::error::row(kind);
            (row.code, row.word)
        }
    }
}

pub(super) fn error(version: ProtocolVersion, kind: ErrorKind) -> Value {
    let (code, word) = code(version, kind);
    json!({"code": code, "type": word})
}

/// The codes of these kinds, by their words.
pub(super) fn codes(version: ProtocolVersion, kinds: &[ErrorKind]) -> Map<String, Value> {
    kinds.iter().map(|kind| code(version, *kind)).map(|(code, word)| (word.to_owned(), json!(code))).collect()
}
