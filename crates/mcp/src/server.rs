//! Answers the requests of one MCP client.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use http::request::Parts;
use longshore_peers::{CallKey, CallRequest, ToolCaller, ToolError, Tools, one_line};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use tokio::sync::{Semaphore, mpsc};

use crate::arguments::ToolCall;
use crate::callers::{Callers, IncomingCall};
use crate::catalog::{INSTRUCTIONS, ToolName};
use crate::{progress, results};

/// The most tool calls of a client that may run at once. A further one is refused.
const MAX_CALLS: usize = 32;

/// The MCP server of one client.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    tools: Arc<dyn Tools>,
    callers: Arc<dyn Callers>,
    waiting: Arc<Semaphore>,
}

impl Server {
    pub(crate) fn new(tools: Arc<dyn Tools>, callers: Arc<dyn Callers>) -> Self {
        Self { tools, callers, waiting: Arc::new(Semaphore::new(MAX_CALLS)) }
    }

    async fn perform(
        &self,
        tool: ToolName,
        mut call: IncomingCall,
        progress: mpsc::Sender<String>,
    ) -> Result<CallToolResult, ToolError> {
        let Ok(_slot) = self.waiting.try_acquire() else {
            return Err(ToolError(format!(
                "The call was not made: {MAX_CALLS} calls are waited for already. Wait until one of them returns."
            )));
        };
        let (caller, key) = self.callers.identify(&mut call).await?;
        let wanted = ToolCall::parse(tool, &call.arguments)?;
        self.run(&caller, &key, wanted, progress).await
    }

    async fn run(
        &self,
        caller: &ToolCaller,
        key: &CallKey,
        wanted: ToolCall,
        progress: mpsc::Sender<String>,
    ) -> Result<CallToolResult, ToolError> {
        let tools = &self.tools;
        let report = match wanted {
            ToolCall::Discover => return tools.discover(caller).await.map(|peers| results::peers(&peers)),
            ToolCall::Call { peer, message, wait } => {
                let request = CallRequest { peer, text: message, continues: None, wait };
                tools.call(caller, key, request, progress).await?
            }
            ToolCall::Continue { call, message, wait } => {
                let request = CallRequest { peer: String::new(), text: message, continues: Some(call), wait };
                tools.call(caller, key, request, progress).await?
            }
            ToolCall::Answer { call, request } => tools.answer(caller, key, &call, request, progress).await?,
            ToolCall::Status { call, wait } => tools.status(caller, &call, wait, progress).await?,
            ToolCall::Cancel { call } => tools.cancel(caller, &call).await?,
        };
        Ok(results::report(&report))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("longshore", env!("CARGO_PKG_VERSION"));
        info.with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ToolName::ALL.map(ToolName::tool).to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&request.name) else {
            let text = format!("There is no tool `{}`; tools/list names the tools.", one_line(&request.name));
            return Err(ErrorData::invalid_params(text, None));
        };
        let knows_links = knows_links(&context);
        let token = context.meta.get_progress_token();
        let call = IncomingCall {
            tool: tool.as_str().to_owned(),
            arguments: request.arguments.unwrap_or_default(),
            meta: context.meta.0.0,
            request_id: context.id.to_string(),
        };
        let (lines, reported) = mpsc::channel(progress::WAITING_LINES);
        let performed = tokio::select! {
            performed = AssertUnwindSafe(self.perform(tool, call, lines)).catch_unwind() => performed.unwrap_or_else(|_| {
                // The panic message is in the log, not in the answer.
                Err(ToolError("The gateway failed while it made the call. What became of it, a2a_status can tell.".to_owned()))
            }),
            never = progress::forward(reported, context.peer, token) => match never {},
            // The client has disconnected or canceled the request. The call itself goes on, and its handle stays valid.
            () = context.ct.cancelled() => Err(ToolError("The client waits no longer; the call goes on.".to_owned())),
        };
        let mut result = performed.unwrap_or_else(|error| results::refusal(&error));
        if !knows_links {
            // Nothing is lost: the text lists the links too.
            result.content.retain(|block| !matches!(block, ContentBlock::ResourceLink(_)));
        }
        Ok(result.into())
    }
}

/// Whether the client's version of MCP supports resource links.
fn knows_links(context: &RequestContext<RoleServer>) -> bool {
    const FIRST: ProtocolVersion = ProtocolVersion::V_2025_06_18;
    let Some(parts) = context.extensions.get::<Parts>().filter(|_| context.meta.protocol_version().is_none())
    else {
        return context.protocol_version().is_none_or(|version| version >= FIRST);
    };
    // A request without the header comes from a client of a version older than the header, and so older than links.
    let version = parts.headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    version.is_some_and(|version| version >= FIRST.as_str())
}
