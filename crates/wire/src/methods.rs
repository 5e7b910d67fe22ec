//! The one table of the methods that extensions add to JSON-RPC: the name, parameters, result, required capability and effect
//! of each.
//!
//! The gateway routes calls and checks their parameters by this table. The cards, the contract documents (wire contract and
//! compatibility profile, see [`crate::contract`]), the `OpenAPI` document and `docs/methods.md` are generated from it. So to add a
//! method, add one row here and write its implementation.

pub mod answer;
mod args;
mod asks;
mod build;
mod call;
mod form;
pub(crate) mod item;
mod param;
mod providers;
pub mod reference;
mod row;
pub(crate) mod schema;
mod sessions;
mod workspace;

pub(crate) use call::OTHER_PAGING;
pub use call::{Call, Need};
pub use item::{Field, FieldType};
#[cfg(test)]
pub(crate) use param::MODEL;
pub use param::{
    IdKind, Kind, MAX_BRANCH, MAX_CURSOR, MAX_INT, MAX_LINE, MAX_LINES, MAX_NAME, Param, Variant,
};
pub use row::{Answer, Effect, Item, Method, Stability, Switch, Upstream};

use crate::contract::Deployment;

/// The field of a request in which a caller names a directory.
pub const DIRECTORY_FIELD: &str = "metadata.opencode.directory";

/// Every method, by extension, in the order of the card.
pub fn all() -> impl Iterator<Item = &'static Method> + Clone {
    [&asks::ANSWERS[..], &sessions::METHODS, &providers::METHODS, &workspace::METHODS, &asks::RECOVERY]
        .into_iter()
        .flatten()
}

/// The methods that a deployment serves.
pub fn enabled(deployment: &Deployment) -> impl Iterator<Item = &'static Method> + Clone {
    all().filter(move |method| method.is_on(deployment))
}

/// The methods that a deployment could serve but that are switched off, each with its switch.
pub fn disabled(deployment: &Deployment) -> impl Iterator<Item = (&'static Method, Switch)> {
    let missing = all().filter(move |method| method.is_there(deployment) && !method.is_on(deployment));
    missing.filter_map(|method| Some((method, method.switch?)))
}

/// Converts the key of a method to a type name, such as `ListSessions`.
pub(crate) fn pascal_case(key: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    key.split('_').map(capital).collect()
}

/// `None`: no extension has such a method.
pub fn find(name: &str) -> Option<&'static Method> {
    all().find(|method| method.name == name)
}

#[cfg(test)]
mod tests;
