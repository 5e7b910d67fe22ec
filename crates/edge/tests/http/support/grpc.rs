//! Calls of gRPC, through the client of the gateway's own commands. A call is written as a request of REST, whose JSON is that of the
//! messages, and its reply is read as REST would carry it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Request, StatusCode};
use longshore_grpc::client::{self, Caller, Package};
use longshore_grpc::refusal::Refusal;
use longshore_model::EventId;
use longshore_wire::surface::{Operation, Params, ProtocolVersion};
use longshore_wire::v1::method::Method;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::protocol_client::PUSH_ID;
use super::{Answer, Frame, PATIENCE};

/// The longest message that the client takes.
const LIMIT: usize = 16 * 1024 * 1024;

/// The number of the status of a call beyond a limit.
const RESOURCE_EXHAUSTED: i32 = 8;

/// The service of one version at one address.
#[derive(Clone)]
pub(crate) struct Grpc {
    caller: Arc<Caller>,
    version: ProtocolVersion,
    pub(crate) address: SocketAddr,
}

/// What a call asks for, whatever carries it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// The id of the task, if the path of a REST request has one.
    pub(crate) task: String,
    /// The body of the REST request.
    pub(crate) params: Value,
}

/// The events of a stream. Dropping it cancels the call.
pub(crate) struct GrpcEvents(client::Events);

impl Grpc {
    pub(crate) fn new(version: ProtocolVersion, address: SocketAddr) -> Self {
        let package = match version {
            ProtocolVersion::V1 => Package::V1,
            ProtocolVersion::V03 => Package::V03,
        };
        let caller = Caller::new(&format!("http://{address}"), package, PATIENCE, LIMIT).unwrap();
        Self { caller: Arc::new(caller), version, address }
    }

    /// The same service, on a connection of its own.
    pub(crate) fn apart(&self) -> Self {
        Self::new(self.version, self.address)
    }

    /// Whether the service has a call for the operation.
    pub(crate) fn has(&self, method: Method) -> bool {
        Operation::of(method).grpc(self.version).is_some()
    }

    /// The result, as the body of a REST response. A stream must be refused.
    pub(crate) async fn answer(&self, asked: &Asked, request: &Request<Bytes>) -> Answer {
        if Operation::of(asked.method).streams {
            let refusal = self.stream(asked, request).await.err().expect("a refusal");
            return self.refused(&refusal);
        }
        let (name, headers) = (self.name(asked.method), metadata(request));
        let call = self.caller.call(name, &headers, self.message(asked));
        let answer = tokio::time::timeout(PATIENCE, call).await.expect("the answer ends").expect("a call");
        match answer {
            Ok(body) => answer_of(StatusCode::OK, &body),
            Err(refusal) => self.refused(&refusal),
        }
    }

    pub(crate) async fn events(&self, asked: &Asked, request: &Request<Bytes>) -> GrpcEvents {
        let opened = self.stream(asked, request).await;
        GrpcEvents(opened.unwrap_or_else(|refusal| panic!("{refusal:?}")))
    }

    async fn stream(&self, asked: &Asked, request: &Request<Bytes>) -> Result<client::Events, Refusal> {
        let (name, headers) = (self.name(asked.method), metadata(request));
        let call = self.caller.stream(name, &headers, self.message(asked));
        tokio::time::timeout(PATIENCE, call).await.expect("an answer begins").expect("a call that streams")
    }

    fn name(&self, method: Method) -> &'static str {
        Operation::of(method).grpc(self.version).expect("a call of this version")
    }

    /// The message of the call. REST has some of its fields in the path.
    fn message(&self, Asked { method, task, params }: &Asked) -> Value {
        let mut message = if params.is_object() { params.clone() } else { json!({}) };
        let (is_old, name) = (self.version == ProtocolVersion::V03, format!("tasks/{task}"));
        let mut set = |field: &str, value: &str| message[field] = json!(value);
        match Operation::of(*method).params {
            Params::Message | Params::List | Params::Ignored => {}
            Params::Task | Params::TaskWithHistory if is_old => set("name", &name),
            Params::Task | Params::TaskWithHistory => set("id", task),
            Params::NewPushConfig | Params::PushConfigs if is_old => set("parent", &name),
            Params::NewPushConfig | Params::PushConfigs => set("taskId", task),
            Params::PushConfig if is_old => set("name", &format!("{name}/pushNotificationConfigs/{PUSH_ID}")),
            Params::PushConfig => {
                set("taskId", task);
                set("id", PUSH_ID);
            }
        }
        message
    }

    /// A status of gRPC as REST would carry it, as far as the tests read it.
    fn refused(&self, refusal: &Refusal) -> Answer {
        let Refusal { code, retry_after_seconds: pause, .. } = refusal;
        let reason = refusal.reason.as_ref().unwrap_or_else(|| panic!("{refusal:?}"));
        let body = match self.version {
            ProtocolVersion::V1 => {
                let metadata = pause.map(|pause| json!({"retryAfterSeconds": pause.to_string()}));
                json!({"error": {"details": [{"reason": reason, "metadata": metadata}]}})
            }
            ProtocolVersion::V03 => json!({"type": reason, "retry_after_seconds": pause}),
        };
        let status = match *code {
            RESOURCE_EXHAUSTED => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_REQUEST,
        };
        answer_of(status, &body)
    }
}

impl GrpcEvents {
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        self.try_next().await.map(|next| next.unwrap_or_else(|refusal| panic!("{refusal:?}")))
    }

    /// The next event. `Err`: the stream failed or was cut.
    pub(crate) async fn try_next(&mut self) -> Option<Result<Frame, Refusal>> {
        let next = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("an event or the end");
        Some(next?.map(frame))
    }
}

fn frame(data: Value) -> Frame {
    let payload = data.as_object().unwrap().values().next().unwrap();
    let cursor = payload["metadata"]["longshore"]["cursor"].as_str().map(str::to_owned);
    let id = cursor.as_deref().map(|id| EventId::parse(id).unwrap().seq.0);
    Frame { id, cursor, event: None, raw: data.to_string(), data }
}

/// The address of a port whose connections lead to a unix socket: the client knows no other sockets than those of TCP.
#[expect(clippy::disallowed_methods, reason = "the connections are no tasks of the gateway")]
pub(crate) async fn port_of_unix_socket(path: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let join = async |mut from: TcpStream, path: PathBuf| {
        let mut to = UnixStream::connect(path).await.unwrap();
        // Either end may close first.
        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
    };
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            tokio::spawn(join(from, path.clone()));
        }
    });
    address
}

/// The metadata of a call are the headers of the request, but for those about its body.
fn metadata(request: &Request<Bytes>) -> HeaderMap {
    let mut headers = request.headers().clone();
    headers.remove(CONTENT_TYPE);
    headers
}

fn answer_of(status: StatusCode, body: &Value) -> Answer {
    Answer { status, headers: HeaderMap::new(), body: body.to_string().into() }
}

impl fmt::Debug for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc").field("version", &self.version).finish_non_exhaustive()
    }
}
