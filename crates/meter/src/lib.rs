//! What the gateway counts, and the page on which an operator reads it.
//!
//! [`Metrics`] has one field for each metric. Whoever counts has it in an `Arc` and adds to a field: one or two
//! relaxed atomic additions, with no look-up, no lock and no global. [`Metrics::render`] writes all of them in the text
//! format 0.0.4 of Prometheus. [`FAMILIES`] is the same list as data.
//!
//! A metric is declared once, in `metrics.rs`, with its name, its help and its type; kind and labels follow from the
//! type. Labels are closed enums, so that no caller can make a series: the size of the page has a bound.
//!
//! No dependency, no clock but the monotonic one, and nothing is read from the system but `/proc/self`, at a scrape.

#![warn(missing_docs)]

mod cell;
mod histogram;
pub mod label;
mod metrics;
mod page;
pub mod process;
mod quantity;
pub mod scale;

pub use cell::{Counter, Gauge, Info, Peak, Reading, Total, WhenUsed};
pub use histogram::{Histogram, Timer};
pub use label::{Label, PerLabel};
pub use metrics::{FAMILIES, Held, Metrics};
pub use page::{CONTENT_TYPE, Family, Kind, Labels, Shape};
pub use quantity::{Milliseconds, Quantity, Seconds, Whole};
pub use scale::Scale;
