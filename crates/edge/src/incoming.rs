//! The head of a request: its route, the protocol version that it requests, and the format of its response.

use std::net::IpAddr;
use std::sync::OnceLock;

use http::Method;
use http::request::Parts;
use longshore_model::{Error, ErrorKind, Result, TraceContext};
use longshore_wire::extension::Activated;
use longshore_wire::jsonrpc::Id;
use longshore_wire::surface::{Access, Served};
use longshore_wire::v1::method::Method as OperationName;
use longshore_wire::v03::Dialect;
use tracing::Span;

use crate::auth::Caller;
use crate::count;
use crate::documents::DocumentRequest;
use crate::gate::RequestHead;
use crate::grpc::Protobuf;
use crate::limits::OpenRequest;
use crate::page;
use crate::reply::{self, Response};
use crate::request_line::RequestLine;
use crate::response_format::ResponseFormat;
use crate::route::{Resolved, Route, Target};
use crate::version::{ProtocolVersion, RequestedVersion};

/// The head of a request, with its route and requested version.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) peer: IpAddr,
    /// The open request on its connection. `None`: the request did not arrive on a connection.
    pub(crate) open: Option<&'a OpenRequest>,
    pub(crate) trace: TraceContext,
    /// The span for all log lines about the request.
    pub(crate) span: Span,
    /// The log line that summarizes the request.
    pub(crate) line: RequestLine,
    pub(crate) parts: &'a Parts,
    pub(crate) requested: RequestedVersion,
    pub(crate) target: Target,
    /// Converts the messages of a gRPC call. `None`: the request is not a gRPC call.
    pub(crate) grpc: Option<&'static dyn Protobuf>,
    /// The name in the metrics of a JSON-RPC call's operation. Set when the body has been read.
    pub(crate) called: OnceLock<&'static str>,
}

impl Incoming<'_> {
    /// The response format as far as the head of the request determines it.
    pub(crate) fn format(&self) -> ResponseFormat {
        let version = match self.target.resolved {
            Resolved::Route(_) => self.requested.response_version(self.target.version),
            Resolved::UnknownTenant(_) | Resolved::Unknown => {
                self.requested.response_version_of_unknown(self.target.version)
            }
        };
        if let Some(protobuf) = self.grpc {
            return ResponseFormat::grpc(version, protobuf);
        }
        if self.is_rpc() { ResponseFormat::rpc(version) } else { ResponseFormat::rest(version) }
    }

    /// The parts that the gate checks. The page for browsers needs no credential.
    pub(crate) fn head(&self) -> RequestHead<'_> {
        let access = match self.route() {
            _ if page::is_wanted(self.parts) => Access::Anybody,
            Some(route) => route.access(),
            None => Access::Credential,
        };
        RequestHead {
            peer: self.peer,
            parts: self.parts,
            access,
            is_exempt_from_limits: self.is_exempt_from_limits(),
            open: self.open,
        }
    }

    /// Answers with an error in the format of the request's version and binding.
    pub(crate) fn refuse(&self, error: &Error) -> Response {
        self.format().refuse(&Id::Null, &self.parts.headers, error)
    }

    pub(crate) fn document_request<'a>(
        &'a self,
        caller: Option<&'a Caller>,
        version: Option<ProtocolVersion>,
        dialect: Dialect,
    ) -> DocumentRequest<'a> {
        DocumentRequest { version, base: self.target.base, caller, dialect, parts: self.parts }
    }

    /// The format in which an operation is answered. `None`: the request is not an operation.
    pub(crate) fn operation_format(&self, response: &Response) -> Option<ResponseFormat> {
        self.route()?.logged_path()?;
        let format = self.format();
        Some(ResponseFormat { version: reply::version_of(response).unwrap_or(format.version), ..format })
    }

    /// The name of the operation in the metrics.
    pub(crate) fn called(&self) -> &'static str {
        let of_route =
            || self.route()?.operation(&self.parts.method).map(|operation| operation.method.as_str());
        self.called.get().copied().or_else(of_route).unwrap_or(count::OTHER)
    }

    /// Whether the rate limit and the throttle ignore the request. Such requests cost almost nothing, and every client must be able
    /// to learn that the gateway is up, how to call it, and (with a credential) how busy it is.
    pub(crate) fn is_exempt_from_limits(&self) -> bool {
        let is_exempt =
            |route: &Route| matches!(route.served(), Some(Served::Card | Served::Alive | Served::Metrics));
        self.parts.method == Method::OPTIONS || self.route().is_some_and(is_exempt)
    }

    pub(crate) fn is_rpc(&self) -> bool {
        self.parts.method == Method::POST
            && self.route().is_some_and(|route| route.served() == Some(Served::Rpc))
    }

    pub(crate) fn route(&self) -> Option<&Route> {
        match &self.target.resolved {
            Resolved::Route(route) => Some(route),
            Resolved::UnknownTenant(_) | Resolved::Unknown => None,
        }
    }

    /// The version and route of a REST request, if the version is served and has the path.
    pub(crate) fn served(&self) -> Result<(ProtocolVersion, &Route)> {
        let version = self.requested.resolve(self.target.version)?;
        let other = self.target.version.filter(|own| *own != version);
        let problem = match (&self.target.resolved, other) {
            (Resolved::Route(route), None) => return Ok((version, route)),
            (Resolved::Route(_), Some(own)) => {
                let (version, own) = (version.as_str(), own.as_str());
                format!(
                    "This path belongs to A2A {own}, and the request uses {version}; send A2A-Version: {own}."
                )
            }
            (Resolved::UnknownTenant(tenant), _) => {
                return Err(Error::new(
                    ErrorKind::RouteNotFound,
                    "The path begins with a tenant, and no tenants are configured; leave the first segment out.",
                )
                .detail("tenant", tenant));
            }
            (Resolved::Unknown, _) => {
                "There is no such path; the OpenAPI document at /openapi.json lists the paths.".to_owned()
            }
        };
        Err(Error::new(ErrorKind::RouteNotFound, problem))
    }

    pub(crate) fn check_verb(&self, route: &Route) -> Result<()> {
        if route.accepts(&self.parts.method) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::VerbNotAllowed,
            format!("This path does not take this verb; it takes {}.", verbs(route)),
        ))
    }

    /// The activated extensions that the response names. The extended card names all of them. Documents and files name none,
    /// because a shared cache may store them.
    pub(crate) fn echoed(&self, activated: Activated, public: Activated) -> Option<Activated> {
        let route = self.route()?;
        route.logged_path()?;
        let operation = route.operation(&self.parts.method).or_else(|| route.operation(&Method::GET));
        let is_extended_card = operation.is_some_and(|row| row.method == OperationName::GetExtendedAgentCard);
        Some(if is_extended_card { activated } else { activated.and(public) })
    }
}

pub(crate) fn verbs(route: &Route) -> String {
    route.verbs().join(", ")
}
