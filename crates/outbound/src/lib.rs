//! Calls URLs that a caller of the gateway gave: the address guard, and one guarded `POST`.
//!
//! Such a URL is hostile until proven otherwise: it could name a service that only this machine reaches, such as the metadata
//! address of a cloud. So each call goes through these stages, and a refusal at any of them comes before a connection is tried:
//!
//! 1. [`Guard::read`]: the spelling of the URL, its scheme, port and host. Every parser must read the same host in it.
//! 2. [`Resolver`]: the addresses of the host, asked for at each call.
//! 3. [`Guard::check_addresses`]: no address may be in a special range, unless the operator allowed the network.
//! 4. [`Dialer`]: a connection to exactly such an address. The name is not resolved again.
//!
//! Redirects are never followed, and no proxy is used: both would connect to an address that was not checked.

mod address;
mod connection;
mod dial;
mod error;
mod guard;
mod host_rule;
mod idle;
mod outbound;
mod resolve;
mod retry_after;
pub mod signing;
mod spelling;
mod tls;

pub use dial::{Dialer, TcpDialer};
pub use error::{Error, ErrorKind};
pub use guard::{Guard, Refusal, Rules, Scheme};
pub use host_rule::HostRule;
pub use ipnet::IpNet;
pub use outbound::{Answer, Outbound, Post, Timeouts};
pub use resolve::{Resolver, SystemResolver};
pub use retry_after::RetryAfter;
pub use spelling::Target;
pub use tls::{InvalidAuthorities, Trust};

pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
