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
mod param;
mod providers;
mod row;
mod sessions;
mod workspace;

pub use call::Call;
pub use param::{
    IdKind, Kind, MAX_BRANCH, MAX_CURSOR, MAX_INT, MAX_LINE, MAX_LINES, MAX_NAME, Param, Variant,
};
pub use row::{Answer, Effect, Item, Method, Stability, Switch, Upstream};

/// Every method, by extension, in the order of the card.
pub fn all() -> impl Iterator<Item = &'static Method> + Clone {
    [&asks::ANSWERS[..], &sessions::METHODS, &providers::METHODS, &workspace::METHODS, &asks::RECOVERY]
        .into_iter()
        .flatten()
}

/// Those that the gateway answers by now.
pub fn served() -> impl Iterator<Item = &'static Method> + Clone {
    [&asks::ANSWERS[..], &asks::RECOVERY].into_iter().flatten()
}

/// `None`: no extension has such a method.
pub fn find(name: &str) -> Option<&'static Method> {
    all().find(|method| method.name == name)
}

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
