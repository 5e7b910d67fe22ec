//! The facts about a gateway from which its documents are built.

use longshore_model::card::{AuthScheme, INPUT_MODES};

use super::card::Base;
use super::environment::Environment;
use crate::agent::AgentSurface;
use crate::extension::{Exposure, Extension};
use crate::surface::{self, ProtocolVersion};

/// The title of a gateway whose operator configured none.
pub const DEFAULT_TITLE: &str = "Longshore";

/// The facts of the configuration that callers may know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the configuration")]
pub struct Deployment {
    pub title: String,
    pub description: String,
    /// The name of the served agent for descriptions.
    pub agent_name: String,
    /// The additions of this kind of agent to the protocol.
    pub surface: &'static AgentSurface,
    /// The methods of the surface that the agent does not offer. The documents leave them out. A call of such a method still
    /// reaches the agent, which may have been replaced by one that offers it.
    pub lacking: Vec<&'static str>,
    pub version: String,
    /// The URL by which clients reach the gateway, without a slash at the end.
    pub public_url: String,
    /// Whether gRPC is served. This is set by the edge and is not a setting.
    pub grpc: bool,
    /// The URL by which clients reach the gateway over gRPC, without a path. `None`: the card does not name gRPC.
    pub grpc_url: Option<String>,
    pub documentation_url: Option<String>,
    pub missing_version: MissingVersion,
    /// The accepted kinds of credentials, in any order and possibly repeated.
    pub schemes: Vec<AuthScheme>,
    /// Media types that messages may contain in addition to the standard ones.
    pub more_input_modes: Vec<String>,
    /// Which internals of the agent a caller sees, unless the caller's credential has its own setting.
    pub exposure: Exposure,
    /// The extensions that a request must activate.
    pub required_extensions: Vec<Extension>,
    /// Whether callers may choose a directory below the root of the workspace.
    pub directory_override: bool,
    /// Whether callers have methods to inspect and control the agent.
    pub control: bool,
    /// Whether callers with the capability can run shell commands in sessions.
    pub session_shell: bool,
    /// Whether callers with the capability can change workspaces and worktrees.
    pub workspace_mutations: bool,
    /// Whether callers with the capability can publish sessions.
    pub session_share: bool,
    /// Whether callers with the capability can delete sessions.
    pub session_delete: bool,
    /// Whether callers can register push notifications.
    pub push: bool,
    /// Whether `/metrics` is served.
    pub metrics: bool,
    /// The path of WebSockets. `None`: WebSockets are disabled.
    pub websocket: Option<String>,
    /// Whether the gateway serves only its standard input and output.
    pub stdio: bool,
    pub environment: Environment,
    pub project: Option<String>,
    /// The offered agent for messages that name none.
    pub agent: Option<String>,
    pub variant: Option<String>,
    /// The root directory of the workspace. `None`: callers may not see it.
    pub workspace_root: Option<String>,
}

impl Deployment {
    /// Whether messages may name a workspace of the agent.
    pub(crate) fn has_workspaces(&self) -> bool {
        self.directory_override && self.surface.has_workspaces
    }

    pub fn has_session_shell(&self) -> bool {
        self.control && self.session_shell && !self.environment.is_read_only()
    }

    pub fn has_workspace_mutations(&self) -> bool {
        self.control && self.workspace_mutations && !self.environment.is_read_only()
    }

    pub fn has_session_share(&self) -> bool {
        self.control && self.session_share
    }

    pub fn has_session_delete(&self) -> bool {
        self.control && self.session_delete
    }

    /// The version of a request without `A2A-Version`, as the documents of `version` state it.
    pub(super) fn default_version(&self, version: ProtocolVersion, base: Base) -> ProtocolVersion {
        match (base, self.missing_version) {
            (Base::Versioned, _) | (Base::Root, MissingVersion::ByRequest) => version,
            (Base::Root, MissingVersion::V03) => ProtocolVersion::V03,
        }
    }

    /// The words with which descriptions name the content of streams.
    pub(super) fn streamed(&self) -> &'static str {
        match (self.exposure.raw_thinking, self.exposure.tool_trace) {
            (true, true) => "text, reasoning and tool calls",
            (true, false) => "text and reasoning",
            (false, true) => "text and tool calls",
            (false, false) => "text",
        }
    }

    /// The media types that messages may contain, without duplicates.
    pub(super) fn input_modes(&self) -> Vec<String> {
        let mut modes = INPUT_MODES.map(str::to_owned).to_vec();
        for mode in &self.more_input_modes {
            if !modes.contains(mode) {
                modes.push(mode.clone());
            }
        }
        modes
    }

    pub(super) fn url(&self) -> &str {
        self.public_url.trim_end_matches('/')
    }
}

impl Default for Deployment {
    fn default() -> Self {
        Self {
            title: DEFAULT_TITLE.to_owned(),
            description: "A coding agent that works in one directory.".to_owned(),
            agent_name: "the agent".to_owned(),
            surface: &AgentSurface::PLAIN,
            lacking: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            public_url: "http://127.0.0.1:8000".to_owned(),
            grpc: false,
            grpc_url: None,
            documentation_url: None,
            missing_version: MissingVersion::default(),
            schemes: vec![AuthScheme::Bearer],
            more_input_modes: Vec::new(),
            exposure: Exposure::default(),
            required_extensions: Vec::new(),
            directory_override: true,
            control: false,
            session_shell: false,
            workspace_mutations: false,
            session_share: false,
            session_delete: false,
            push: true,
            metrics: true,
            websocket: Some(surface::WEBSOCKET.path.to_owned()),
            stdio: false,
            environment: Environment::default(),
            project: None,
            agent: None,
            variant: None,
            workspace_root: None,
        }
    }
}

/// How the version of a request without `A2A-Version` is determined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingVersion {
    /// The version is the one that has the method or the path.
    #[default]
    ByRequest,
    /// The version is always 0.3, as the specification of 1.0 demands.
    V03,
}
