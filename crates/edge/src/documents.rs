//! Serves the documents of the deployment: cards and the `OpenAPI` document, which are built once at the start, and health, which
//! is built on request. The extended cards are rebuilt when the agent's offers have changed.
//!
//! The path or `A2A-Version` decides which form of the card a client gets. If neither names a protocol version, the client gets
//! one card for clients of both versions. All forms have validators, so that a returning client gets a 304.

mod prepared;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use longshore_engine::Engine;
use longshore_model::{Choices, Offers};
use longshore_wire::contract::{self, Audience, Base, Deployment};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v03::Dialect;
use longshore_wire::{openapi, v1, v03};
use tokio_util::sync::CancellationToken;

use self::prepared::{CacheScope, DocumentBuilder, PreparedDocument};
use crate::EdgeConfig;
use crate::auth::Caller;
use crate::health::Health;
use crate::reply::Response;

/// The parts of a request that decide which form of a document is served.
#[derive(Debug)]
pub(crate) struct DocumentRequest<'a> {
    /// The version that the request names, or that its path belongs to. `None`: the client may use any version.
    pub(crate) version: Option<ProtocolVersion>,
    /// The version whose base path contains the path of the request. Such a path serves only that version. `None`: the path is
    /// directly under the root.
    pub(crate) base: Option<ProtocolVersion>,
    pub(crate) caller: Option<&'a Caller>,
    /// The variant of 0.3 JSON that clients expect at the path.
    pub(crate) dialect: Dialect,
    pub(crate) parts: &'a Parts,
}

#[derive(Debug)]
pub(crate) struct Documents {
    public: PublicCards,
    extended: Extended,
    openapi: OpenApi,
    health: Health,
}

/// All forms of the public card.
#[derive(Debug)]
struct PublicCards {
    merged: PreparedDocument,
    v1: PerBase,
    v03: PerBase,
}

/// The extended cards, rebuilt when the agent's offers change.
#[derive(Debug)]
struct Extended {
    deployment: Deployment,
    engine: Engine,
    gzip_minimum: usize,
    last: Mutex<Arc<ExtendedCards>>,
}

/// All forms of the extended card. There is no form for both versions, because each path and method that returns the card
/// belongs to one version.
#[derive(Debug)]
pub(crate) struct ExtendedCards {
    /// The offers from which the cards were built.
    offers: Arc<Offers>,
    choices: Option<Choices>,
    v1: PerBase,
    v03: PerBase,
    /// The response of `/v1/card`.
    v03_rest: PerBase,
}

#[derive(Debug)]
struct PerBase {
    root: PreparedDocument,
    base: PreparedDocument,
}

#[derive(Debug)]
struct OpenApi {
    anonymous: PreparedDocument,
    authenticated: PreparedDocument,
}

impl Documents {
    pub(crate) fn new(config: &EdgeConfig, engine: Engine, closing: CancellationToken) -> Self {
        let deployment = &config.deployment;
        let builder = DocumentBuilder { started: engine.now(), gzip_minimum: config.gzip_minimum };
        Self {
            public: PublicCards::new(deployment, &builder),
            extended: Extended {
                deployment: deployment.clone(),
                engine: engine.clone(),
                gzip_minimum: config.gzip_minimum,
                last: Mutex::new(Arc::new(ExtendedCards::new(deployment, Arc::default(), None, &builder))),
            },
            openapi: OpenApi::new(deployment, &builder),
            health: Health::new(deployment.clone(), engine, closing),
        }
    }

    /// The public card. It is served to clients of every version, because it says which versions exist.
    pub(crate) fn card(&self, request: &DocumentRequest<'_>) -> Response {
        let card = match request.base.or(request.version) {
            None => &self.public.merged,
            Some(ProtocolVersion::V1) => self.public.v1.select(request),
            Some(ProtocolVersion::V03) => self.public.v03.select(request),
        };
        card.answer(request.parts)
    }

    /// The extended cards with the current offers of the agent.
    pub(crate) async fn extended_cards(&self) -> Arc<ExtendedCards> {
        self.extended.current().await
    }

    pub(crate) fn openapi(&self, request: &DocumentRequest<'_>) -> Response {
        let document = match request.caller {
            None => &self.openapi.anonymous,
            Some(_) => &self.openapi.authenticated,
        };
        document.answer(request.parts)
    }

    pub(crate) async fn health(&self, version: ProtocolVersion) -> Response {
        self.health.answer(version).await
    }
}

impl PublicCards {
    fn new(deployment: &Deployment, builder: &DocumentBuilder) -> Self {
        let card = |version, base| contract::card(deployment, version, Audience::Anonymous, base);
        let prepared = |bytes| builder.build(bytes, CacheScope::Public);
        Self {
            merged: prepared(v03::card::merged(&contract::merged_card(deployment, Audience::Anonymous))),
            v1: PerBase::new(|base| prepared(v1::card::encode(&card(ProtocolVersion::V1, base)))),
            v03: PerBase::new(|base| {
                prepared(v03::card::encode(&card(ProtocolVersion::V03, base), Dialect::Rpc))
            }),
        }
    }
}

impl Extended {
    async fn current(&self) -> Arc<ExtendedCards> {
        let (offers, choices) = (self.engine.offers().await, self.engine.choices());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.offers != offers || last.choices != choices {
            let builder = DocumentBuilder { started: self.engine.now(), gzip_minimum: self.gzip_minimum };
            *last = Arc::new(ExtendedCards::new(&self.deployment, offers, choices, &builder));
        }
        Arc::clone(&last)
    }
}

impl ExtendedCards {
    fn new(
        deployment: &Deployment,
        offers: Arc<Offers>,
        choices: Option<Choices>,
        builder: &DocumentBuilder,
    ) -> Self {
        let card = |version, base| {
            let mut card = contract::extended_card(deployment, version, base, &offers);
            if let Some(choices) = &choices {
                contract::add_choices(&mut card, choices);
            }
            card
        };
        let prepared = |bytes| builder.build(bytes, CacheScope::Private);
        let old = |dialect, base| prepared(v03::card::encode(&card(ProtocolVersion::V03, base), dialect));
        let v1 = PerBase::new(|base| prepared(v1::card::encode(&card(ProtocolVersion::V1, base))));
        let v03 = PerBase::new(|base| old(Dialect::Rpc, base));
        let v03_rest = PerBase::new(|base| old(Dialect::Rest, base));
        Self { offers, choices, v1, v03, v03_rest }
    }

    pub(crate) fn answer(&self, request: &DocumentRequest<'_>) -> Response {
        self.select(request).answer(request.parts)
    }

    /// The card as the result of a JSON-RPC call.
    pub(crate) fn json(&self, request: &DocumentRequest<'_>) -> Bytes {
        self.select(request).plain()
    }

    fn select(&self, request: &DocumentRequest<'_>) -> &PreparedDocument {
        match (request.base.or(request.version).unwrap_or(ProtocolVersion::V1), request.dialect) {
            (ProtocolVersion::V1, _) => self.v1.select(request),
            (ProtocolVersion::V03, Dialect::Rpc) => self.v03.select(request),
            (ProtocolVersion::V03, Dialect::Rest) => self.v03_rest.select(request),
        }
    }
}

impl PerBase {
    fn new(prepare: impl Fn(Base) -> PreparedDocument) -> Self {
        Self { root: prepare(Base::Root), base: prepare(Base::Versioned) }
    }

    fn select(&self, request: &DocumentRequest<'_>) -> &PreparedDocument {
        match request.base {
            None => &self.root,
            Some(_) => &self.base,
        }
    }
}

impl OpenApi {
    fn new(deployment: &Deployment, builder: &DocumentBuilder) -> Self {
        let document = |audience, scope| builder.build(openapi::document(deployment, audience), scope);
        Self {
            anonymous: document(Audience::Anonymous, CacheScope::PublicWithoutCredential),
            authenticated: document(Audience::Authenticated, CacheScope::Private),
        }
    }
}
