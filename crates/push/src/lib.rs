//! Delivers push notifications.
//!
//! The log of a task is the queue: each configuration has a durable cursor in it. The [`worker`](start) leases configurations with
//! undelivered events, and sends the events after the cursor in order, each at least once. Each attempt to send an event has the
//! same header `webhook-id`, so a receiver can drop repeated events.
//!
//! Many receivers are down or slow, and some URLs are attacks. So the concurrent calls are limited in all, per owner and per host;
//! a host that fails repeatedly gets pauses; and each call goes through the address guard of [`longshore_outbound`].

mod body;
mod configs;
mod folded;
mod hosts;
mod in_flight;
mod lane;
mod policy;
mod request;
mod transport;
mod worker;

pub use configs::DeliveredConfigs;
pub use policy::DeliveryRules;
pub use transport::{Failure, Transport};
pub use worker::{Delivery, DeliveryParts};
