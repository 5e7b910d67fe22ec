//! Calls URLs that a caller of the gateway gave: the address guard, and one guarded `POST`.
//!
//! Such a URL may be an attack: it could name a service that only this machine reaches, such as the metadata address of a cloud. So
//! each call passes these stages, and a refusal in one of them comes before any connection is opened:
//!
//! 1. [`Guard::read`] checks the spelling of the URL, its scheme, port and host. Every URL parser must find the same host in it.
//! 2. [`Resolver`] finds the addresses of the host, anew for each call.
//! 3. [`Guard::check_addresses`] refuses addresses in special ranges, unless the operator has allowed their network.
//! 4. [`Dialer`] connects to exactly one of these addresses, without resolving the name again.
//!
//! Redirects are never followed and no proxy is used, because both would lead to an address that was not checked.

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
