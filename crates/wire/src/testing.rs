//! Support for the tests of this crate: generators of arbitrary values, and readable snapshots of documents.

pub(crate) mod arbitrary;
pub(crate) mod damage;
pub(crate) mod document;
pub(crate) mod params;
