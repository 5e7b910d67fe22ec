//! MCP over HTTP, at a path of the gateway.
//!
//! The server is stateless: it keeps no session, so no session needs a limit or a timeout, or is lost in a restart. Versions of MCP
//! before 2026-07-28 allow a stateless server, and later versions allow no other.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use longshore_edge::{McpBody, McpService, OwnAgent};
use longshore_engine::port::BoxFuture;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::own_agent::{ClientCallers, OwnAgentTools};
use crate::server::Server;

/// Serves the tools for the gateway's own agent over HTTP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http;

impl McpService for Http {
    fn answer(&self, agent: OwnAgent, request: Request<Bytes>) -> BoxFuture<'static, Response<McpBody>> {
        let callers = Arc::new(ClientCallers::new(agent.principal().clone()));
        let server = Server::new(Arc::new(OwnAgentTools::new(agent)), callers);
        // The edge has already checked host, origin and size, so these checks are turned off here. The SDK answers calls with an
        // SSE stream. From MCP version 2026-07-28 on, the SDK sends the response head only with the first message.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_sse_retry(None)
            .disable_allowed_hosts()
            .with_max_request_body_bytes(usize::MAX);
        let service = StreamableHttpService::new(
            move || Ok(server.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        Box::pin(async move {
            let response = service.handle(request.map(Full::new)).await;
            response.map(BodyExt::boxed_unsync)
        })
    }
}
