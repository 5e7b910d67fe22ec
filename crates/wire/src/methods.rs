//! The table of the methods that extensions add to JSON-RPC: the name, parameters, result, required capability and effect of each.
//!
//! The gateway routes calls and checks their parameters by this table. The cards, the contract documents (see [`crate::contract`]),
//! the `OpenAPI` document and `docs/methods.md` are generated from it. To add a method, add one row and write its implementation.
//! The rows for methods about asks are here, and all others among the methods of an agent.

mod args;
mod asks;
mod call;
mod form;
pub(crate) mod item;
mod param;
mod row;
pub(crate) mod schema;

pub(crate) use args::{Arg, Args, CHECKED, Location, Members, plain};
pub(crate) use call::OTHER_PAGING;
pub use call::{Call, Need};
pub(crate) use form::line;
pub use item::{Field, FieldType, Item, ItemType};
pub use param::{
    IdKind, Kind, MAX_BRANCH, MAX_CURSOR, MAX_INT, MAX_LINE, MAX_LINES, MAX_NAME, Param, Variant,
};
pub(crate) use param::{LINE, LINES, MODEL, NAME, Routing};
pub(crate) use row::DIRECTORY_QUERY;
pub use row::{Answer, Effect, Method, Stability, Switch, Upstream};

use crate::agent::AgentSurface;
use crate::contract::Deployment;

/// Every method that the deployment can have, grouped by extension, in the order of the card.
pub fn all(deployment: &Deployment) -> impl Iterator<Item = &'static Method> + Clone + use<> {
    of(deployment.surface)
}

/// Every method that gateways with this kind of agent can have.
pub(crate) fn of(surface: &'static AgentSurface) -> impl Iterator<Item = &'static Method> + Clone {
    let of_agent = surface.methods.iter().copied();
    std::iter::once(&asks::ANSWERS[..]).chain(of_agent).chain([&asks::RECOVERY[..]]).flatten()
}

/// The methods that answer asks.
pub(crate) fn answers() -> &'static [Method] {
    &asks::ANSWERS
}

/// The methods that the documents may name: all except those that the agent lacks.
pub(crate) fn offered(deployment: &Deployment) -> impl Iterator<Item = &'static Method> + Clone {
    all(deployment).filter(|method| !deployment.lacking.contains(&method.name))
}

/// The methods that the deployment serves.
pub fn enabled(deployment: &Deployment) -> impl Iterator<Item = &'static Method> + Clone {
    offered(deployment).filter(move |method| method.is_on(deployment))
}

/// The disabled methods that the deployment could serve, each with its switch.
pub fn disabled(deployment: &Deployment) -> impl Iterator<Item = (&'static Method, Switch)> {
    let missing =
        offered(deployment).filter(move |method| method.is_there(deployment) && !method.is_on(deployment));
    missing.filter_map(|method| Some((method, method.switch?)))
}

/// Converts the key of a method to a type name, such as `ListSessions`.
pub(crate) fn pascal_case(key: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    key.split('_').map(capital).collect()
}

/// The method with this name, enabled or not. `None`: no extension of this deployment has such a method.
pub fn find(deployment: &Deployment, name: &str) -> Option<&'static Method> {
    all(deployment).find(|method| method.name == name)
}

#[cfg(test)]
mod tests;
