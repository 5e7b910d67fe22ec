//! The documents that describe a deployment to clients: cards, profile, contracts, health.
//!
//! Each document is built from the facts of a [`Deployment`], from [`crate::surface`], and from the tables of the extensions and
//! errors. Its field names are those of one protocol version. Documents are built once, at the start, so speed does not matter:
//! they are built as JSON values, while events are written byte by byte.

mod behavior;
mod card;
mod choices;
mod compatibility;
mod deployment;
mod environment;
mod health;
pub(crate) mod method;
pub(crate) mod params;
pub(crate) mod profile;
mod skill;
#[cfg(test)]
mod tests;
mod wire_contract;

pub use behavior::service_behaviors;
pub use card::{
    Audience, Base, ListedInterface, card, extended_card, extensions, interfaces, listed_interfaces,
    merged_card, public_extensions,
};
pub use choices::add_choices;
pub(crate) use choices::description;
pub use compatibility::compatibility_profile;
pub use deployment::{DEFAULT_TITLE, Deployment, MissingVersion};
pub use environment::{
    ApprovalPolicy, Environment, EscalationBehavior, FilesystemScope, NetworkAccess, OutsideWorkspace,
    SandboxMode, WriteScope,
};
pub use health::{HealthFacts, Part, health};
pub use profile::profile;
pub(crate) use skill::{PRIVATE as PRIVATE_SKILL, SkillRow};
pub use wire_contract::{disabled_method, unsupported_method, wire_contract};

#[cfg(test)]
pub(crate) use tests::{full as full_deployment, plain as plain_deployment};
