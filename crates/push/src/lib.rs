//! Delivers push notifications.
//!
//! The log of a task is the queue: each configuration has a durable cursor in it. The [`worker`](start) leases configurations whose
//! log has news for them, and sends the events after the cursor one after the other, so that they arrive in order and at least once.
//! The header `webhook-id` is the same each time an event is sent, so a receiver can drop what it has got already.
//!
//! Many receivers are down or slow, and some are meant to do harm. So the calls at a time are limited in all, per owner and per host;
//! a host that fails again and again gets pauses; and each call goes through the address guard of [`longshore_outbound`].

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
