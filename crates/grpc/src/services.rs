//! The standard gRPC services that the gateway offers beside A2A: reflection, for tools without the descriptors, and health, for
//! load balancers.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use longshore_edge::{GrpcBody, GrpcServices};
use longshore_wire::surface::{Access, ProtocolVersion};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic_health::ServingStatus;

use crate::DESCRIPTORS;

/// The method that returns the health of the whole gateway. It needs no credential, like `/livez`.
const CHECK: &str = "/grpc.health.v1.Health/Check";

type Handler = Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// The standard services that are switched on.
#[derive(Default)]
pub struct Services {
    /// The handlers, each with the name of its service.
    handlers: Vec<(&'static str, Handler)>,
}

impl Services {
    /// Adds the reflection service, in both versions of its protocol.
    pub fn add_reflection(&mut self) -> Result<(), tonic_reflection::server::Error> {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        self.add(builder().build_v1()?);
        self.add(builder().build_v1alpha()?);
        Ok(())
    }

    /// Adds the health service. It reports the services of A2A as serving as long as the gateway runs.
    pub async fn add_health(&mut self) {
        let (reporter, service) = tonic_health::server::health_reporter();
        for version in ProtocolVersion::ALL {
            reporter.set_service_status(version.grpc_service(), ServingStatus::Serving).await;
        }
        self.add(service);
    }

    fn add<S>(&mut self, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| {
            let called = service.clone().call(request);
            Box::pin(async move { called.await.unwrap_or_else(|never| match never {}) })
        });
        self.handlers.push((S::NAME, handler));
    }

    fn handler(&self, path: &str) -> Option<&Handler> {
        let (service, _) = path.strip_prefix('/')?.split_once('/')?;
        self.handlers.iter().find(|(name, _)| *name == service).map(|(_, handler)| handler)
    }
}

impl GrpcServices for Services {
    fn access(&self, path: &str) -> Option<Access> {
        self.handler(path)?;
        Some(if path == CHECK { Access::Anybody } else { Access::Credential })
    }

    fn call(&self, request: Request<GrpcBody>) -> BoxFuture<'static, Response<GrpcBody>> {
        let handler = self.handler(request.uri().path()).cloned();
        Box::pin(async move {
            let Some(handler) = handler else { return Response::new(no_body()) };
            handler(request.map(Body::new)).await.map(|body| body.map_err(Into::into).boxed_unsync())
        })
    }
}

fn no_body() -> GrpcBody {
    http_body_util::Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.handlers.iter().map(|(name, _)| name)).finish()
    }
}
