//! Calls the gRPC service of an agent. Requests and results are JSON in the `ProtoJSON` format, so callers need no generated type.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use http::uri::{InvalidUri, PathAndQuery};
use http::{HeaderMap, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use rustls_platform_verifier::Verifier;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_rustls::rustls;
use tonic::Request;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic_prost::ProstCodec;

use crate::refusal::Refusal;
use crate::well_known::Empty;
use crate::{v1, v03};

/// A protocol buffer package of A2A.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Package {
    /// `lf.a2a.v1`, of A2A 1.0.
    V1,
    /// `a2a.v1`, of A2A 0.3.
    V03,
}

/// The messages of a response stream, as JSON.
pub type Events = Pin<Box<dyn Stream<Item = Result<Value, Refusal>> + Send>>;

/// Why [`Caller::new`] could not make a caller.
#[derive(Debug)]
pub enum Unusable {
    Address(InvalidUri),
    Tls(rustls::Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unusable {}

/// Calls one gRPC service. Clones share one connection, which is opened again after it breaks.
#[derive(Clone, Debug)]
pub struct Caller {
    http: legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>,
    origin: Uri,
    package: Package,
    limit: usize,
}

impl Caller {
    /// `origin`: scheme, host and port, such as `https://agent.example:443`. `limit`: the most bytes of one message.
    pub fn new(
        origin: &str,
        package: Package,
        connect_timeout: Duration,
        limit: usize,
    ) -> Result<Self, Unusable> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_timeout));
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(tls().map_err(Unusable::Tls)?)
            .https_or_http()
            .enable_http2()
            .wrap_connector(tcp);
        let http = legacy::Client::builder(TokioExecutor::new()).http2_only(true).build(tls);
        Ok(Self { http, origin: origin.parse().map_err(Unusable::Address)?, package, limit })
    }

    /// Calls a method with a single result. `None`: the package has no such method.
    pub async fn call(
        &self,
        method: &str,
        headers: &HeaderMap,
        params: Value,
    ) -> Option<Result<Value, Refusal>> {
        let call = Call { caller: self, headers, params };
        Some(match (self.package, method) {
            (Package::V1, "SendMessage") => {
                call.one::<v1::SendMessageRequest, v1::SendMessageResponse>(method).await
            }
            (Package::V1, "GetTask") => call.one::<v1::GetTaskRequest, v1::Task>(method).await,
            (Package::V1, "ListTasks") => call.one::<v1::ListTasksRequest, v1::ListTasksResponse>(method).await,
            (Package::V1, "CancelTask") => call.one::<v1::CancelTaskRequest, v1::Task>(method).await,
            (Package::V1, "CreateTaskPushNotificationConfig") => {
                call.one::<v1::TaskPushNotificationConfig, v1::TaskPushNotificationConfig>(method).await
            }
            (Package::V1, "GetTaskPushNotificationConfig") => {
                call.one::<v1::GetTaskPushNotificationConfigRequest, v1::TaskPushNotificationConfig>(method).await
            }
            (Package::V1, "ListTaskPushNotificationConfigs") => {
                call.one::<v1::ListTaskPushNotificationConfigsRequest, v1::ListTaskPushNotificationConfigsResponse>(
                    method,
                )
                .await
            }
            (Package::V1, "DeleteTaskPushNotificationConfig") => {
                call.one::<v1::DeleteTaskPushNotificationConfigRequest, Empty>(method).await
            }
            (Package::V1, "GetExtendedAgentCard") => {
                call.one::<v1::GetExtendedAgentCardRequest, v1::AgentCard>(method).await
            }
            (Package::V03, "SendMessage") => {
                call.one::<v03::SendMessageRequest, v03::SendMessageResponse>(method).await
            }
            (Package::V03, "GetTask") => call.one::<v03::GetTaskRequest, v03::Task>(method).await,
            (Package::V03, "CancelTask") => call.one::<v03::CancelTaskRequest, v03::Task>(method).await,
            (Package::V03, "CreateTaskPushNotificationConfig") => {
                call.one::<v03::CreateTaskPushNotificationConfigRequest, v03::TaskPushNotificationConfig>(method)
                    .await
            }
            (Package::V03, "GetTaskPushNotificationConfig") => {
                call.one::<v03::GetTaskPushNotificationConfigRequest, v03::TaskPushNotificationConfig>(method).await
            }
            (Package::V03, "ListTaskPushNotificationConfig") => {
                call.one::<v03::ListTaskPushNotificationConfigRequest, v03::ListTaskPushNotificationConfigResponse>(
                    method,
                )
                .await
            }
            (Package::V03, "DeleteTaskPushNotificationConfig") => {
                call.one::<v03::DeleteTaskPushNotificationConfigRequest, Empty>(method).await
            }
            (Package::V03, "GetAgentCard") => call.one::<v03::GetAgentCardRequest, v03::AgentCard>(method).await,
            _ => return None,
        })
    }

    /// Calls a method with a stream of results. `None`: the package has no such method.
    pub async fn stream(
        &self,
        method: &str,
        headers: &HeaderMap,
        params: Value,
    ) -> Option<Result<Events, Refusal>> {
        let call = Call { caller: self, headers, params };
        Some(match (self.package, method) {
            (Package::V1, "SendStreamingMessage") => {
                call.many::<v1::SendMessageRequest, v1::StreamResponse>(method).await
            }
            (Package::V1, "SubscribeToTask") => {
                call.many::<v1::SubscribeToTaskRequest, v1::StreamResponse>(method).await
            }
            (Package::V03, "SendStreamingMessage") => {
                call.many::<v03::SendMessageRequest, v03::StreamResponse>(method).await
            }
            (Package::V03, "TaskSubscription") => {
                call.many::<v03::TaskSubscriptionRequest, v03::StreamResponse>(method).await
            }
            _ => return None,
        })
    }
}

struct Call<'a> {
    caller: &'a Caller,
    headers: &'a HeaderMap,
    params: Value,
}

impl Call<'_> {
    async fn one<Q, A>(self, method: &str) -> Result<Value, Refusal>
    where
        Q: Message + DeserializeOwned + 'static,
        A: Message + Serialize + Default + 'static,
    {
        let (mut grpc, path) = (self.grpc(), self.path(method));
        let answer = grpc.unary(self.request::<Q>()?, path, ProstCodec::<Q, A>::default()).await;
        json(&answer.map_err(|status| Refusal::of(&status))?.into_inner())
    }

    async fn many<Q, A>(self, method: &str) -> Result<Events, Refusal>
    where
        Q: Message + DeserializeOwned + 'static,
        A: Message + Serialize + Default + 'static,
    {
        let (mut grpc, path) = (self.grpc(), self.path(method));
        let answer = grpc.server_streaming(self.request::<Q>()?, path, ProstCodec::<Q, A>::default()).await;
        let messages = answer.map_err(|status| Refusal::of(&status))?.into_inner();
        Ok(Box::pin(messages.map(|message| match message {
            Ok(message) => json(&message),
            Err(status) => Err(Refusal::of(&status)),
        })))
    }

    fn grpc(&self) -> Grpc<legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>> {
        let Caller { http, origin, limit, .. } = self.caller;
        Grpc::with_origin(http.clone(), origin.clone()).max_decoding_message_size(*limit)
    }

    fn path(&self, method: &str) -> PathAndQuery {
        let package = match self.caller.package {
            Package::V1 => "lf.a2a.v1",
            Package::V03 => "a2a.v1",
        };
        let path = format!("/{package}.A2AService/{method}");
        path.parse().expect("the names of packages and methods are plain letters")
    }

    fn request<Q: DeserializeOwned>(self) -> Result<Request<Q>, Refusal> {
        let message = serde_json::from_value(self.params).map_err(|error| Refusal::input(&error))?;
        let mut request = Request::new(message);
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        Ok(request)
    }
}

fn json(message: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(message).map_err(|error| Refusal::output(&error))
}

fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Verifier::new(Arc::clone(&provider))?;
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}
