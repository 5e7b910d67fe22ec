//! The metrics of the gateway, and the page on which an operator reads them.
//!
//! [`Metrics`] has one field for each metric. Each part of the gateway holds it in an `Arc` and adds to a field: one or two
//! relaxed atomic additions, without a lock or a global. [`Metrics::render`] writes all metrics in the Prometheus text
//! format 0.0.4. [`FAMILIES`] is the same list as data.
//!
//! A metric is declared once, in `metrics.rs`, with its name, its help and its type; kind and labels follow from the
//! type. Label values are closed sets, so that no caller can create a series and the size of the page is bounded.
//!
//! This crate has no dependency and uses no clock but the monotonic one. It reads nothing from the system but `/proc/self`, and
//! that only at a scrape.

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
pub use label::{Label, PerLabel, PerName};
pub use metrics::{FAMILIES, GaugeGuard, Metrics};
pub use page::{CONTENT_TYPE, Family, Kind, Labels, MetricSchema};
pub use quantity::{Milliseconds, Quantity, Seconds, Whole};
pub use scale::Scale;
