//! The one table of the methods that extensions add to JSON-RPC: what each is called, takes, gives, needs and does.
//!
//! Routing and reading, the card, the contract documents, the `OpenAPI` and the reference page are made from it, so that a method
//! is one row here and its work elsewhere.

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
pub use item::{Field, Shape};
pub use param::{
    IdKind, Kind, MAX_BRANCH, MAX_CURSOR, MAX_INT, MAX_LINE, MAX_LINES, MAX_NAME, Param, Variant,
};
pub use row::{Answer, Effect, Item, Method, Stability, Switch, Upstream};

use crate::contract::Deployment;

/// Every method, by extension, in the order of the card.
pub fn all() -> impl Iterator<Item = &'static Method> + Clone {
    [&asks::ANSWERS[..], &sessions::METHODS, &providers::METHODS, &workspace::METHODS, &asks::RECOVERY]
        .into_iter()
        .flatten()
}

/// Those that a deployment serves.
pub fn on(deployment: &Deployment) -> impl Iterator<Item = &'static Method> + Clone {
    all().filter(move |method| method.is_on(deployment))
}

/// Those that a deployment has and does not serve, each with what would switch it on.
pub fn off(deployment: &Deployment) -> impl Iterator<Item = (&'static Method, Switch)> {
    let missing = all().filter(move |method| method.is_there(deployment) && !method.is_on(deployment));
    missing.filter_map(|method| Some((method, method.switch?)))
}

/// The key of a method as the name of a type.
pub(crate) fn pascal_case(key: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    key.split('_').map(capital).collect()
}

/// `None`: no extension has such a method.
pub fn find(name: &str) -> Option<&'static Method> {
    all().find(|method| method.name == name)
}

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;
