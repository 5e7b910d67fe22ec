//! The documents of the deployment: cards and the `OpenAPI` document, made once at the start, and health, made when asked. The
//! extended cards are made anew when the agent offers something else than before.
//!
//! The form of a card follows from what names a line: the path, or `A2A-Version`. Where nothing does, one card serves the
//! clients of both. All forms have validators, so that a client that comes again gets 304.

mod prepared;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use longshore_engine::Engine;
use longshore_model::Offers;
use longshore_wire::contract::{self, Audience, Base, Deployment};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v03::Dialect;
use longshore_wire::{openapi, v1, v03};
use tokio_util::sync::CancellationToken;

use self::prepared::{Prepared, Preparing, Readers};
use crate::EdgeConfig;
use crate::auth::Caller;
use crate::health::Health;
use crate::reply::Response;

/// What a document is asked for with.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// The line that the request names, or that its path belongs to. `None`: the client may be of any.
    pub(crate) line: Option<ProtocolVersion>,
    /// The base that the path is under, where only one line is served. `None`: the root.
    pub(crate) base: Option<ProtocolVersion>,
    pub(crate) caller: Option<&'a Caller>,
    /// How 0.3 is spelled where the path is.
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

/// Each form of the public card.
#[derive(Debug)]
struct PublicCards {
    merged: Prepared,
    v1: PerBase,
    v03: PerBase,
}

/// The extended cards as of what the agent offers.
#[derive(Debug)]
struct Extended {
    deployment: Deployment,
    engine: Engine,
    gzip_minimum: usize,
    last: Mutex<Arc<ExtendedCards>>,
}

/// Each form of the extended card. There is no merged one: the paths and methods that give it belong to one line each.
#[derive(Debug)]
struct ExtendedCards {
    /// With which they were made.
    offers: Arc<Offers>,
    v1: PerBase,
    v03: PerBase,
    /// What `/v1/card` gives.
    v03_rest: PerBase,
}

#[derive(Debug)]
struct PerBase {
    root: Prepared,
    line: Prepared,
}

#[derive(Debug)]
struct OpenApi {
    anonymous: Prepared,
    authenticated: Prepared,
}

impl Documents {
    pub(crate) fn new(config: &EdgeConfig, engine: Engine, closing: CancellationToken) -> Self {
        let deployment = &config.deployment;
        let preparing = Preparing { started: engine.now(), gzip_minimum: config.gzip_minimum };
        Self {
            public: PublicCards::new(deployment, &preparing),
            extended: Extended {
                deployment: deployment.clone(),
                engine: engine.clone(),
                gzip_minimum: config.gzip_minimum,
                last: Mutex::new(Arc::new(ExtendedCards::new(deployment, Arc::default(), &preparing))),
            },
            openapi: OpenApi::new(deployment, &preparing),
            health: Health::new(deployment.clone(), engine, closing),
        }
    }

    /// The public card. It is served to clients of every line: it is where they learn which lines there are.
    pub(crate) fn card(&self, asked: &Asked<'_>) -> Response {
        let card = match asked.base.or(asked.line) {
            None => &self.public.merged,
            Some(ProtocolVersion::V1) => self.public.v1.of(asked),
            Some(ProtocolVersion::V03) => self.public.v03.of(asked),
        };
        card.answer(asked.parts)
    }

    pub(crate) async fn extended_card(&self, asked: &Asked<'_>) -> Response {
        self.extended.now().await.of(asked).answer(asked.parts)
    }

    /// The same as the result of a JSON-RPC call.
    pub(crate) async fn extended_card_json(&self, asked: &Asked<'_>) -> Bytes {
        self.extended.now().await.of(asked).plain()
    }

    pub(crate) fn openapi(&self, asked: &Asked<'_>) -> Response {
        let document = match asked.caller {
            None => &self.openapi.anonymous,
            Some(_) => &self.openapi.authenticated,
        };
        document.answer(asked.parts)
    }

    pub(crate) async fn health(&self, line: ProtocolVersion) -> Response {
        self.health.answer(line).await
    }
}

impl PublicCards {
    fn new(deployment: &Deployment, preparing: &Preparing) -> Self {
        let card = |line, base| contract::card(deployment, line, Audience::Anonymous, base);
        let prepared = |bytes| preparing.document(bytes, Readers::Anybody);
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
    async fn now(&self) -> Arc<ExtendedCards> {
        let offers = self.engine.offers().await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.offers != offers {
            let preparing = Preparing { started: self.engine.now(), gzip_minimum: self.gzip_minimum };
            *last = Arc::new(ExtendedCards::new(&self.deployment, offers, &preparing));
        }
        Arc::clone(&last)
    }
}

impl ExtendedCards {
    fn new(deployment: &Deployment, offers: Arc<Offers>, preparing: &Preparing) -> Self {
        let card = |line, base| contract::extended_card(deployment, line, base, &offers);
        let prepared = |bytes| preparing.document(bytes, Readers::Callers);
        let old = |dialect, base| prepared(v03::card::encode(&card(ProtocolVersion::V03, base), dialect));
        let v1 = PerBase::new(|base| prepared(v1::card::encode(&card(ProtocolVersion::V1, base))));
        let v03 = PerBase::new(|base| old(Dialect::Rpc, base));
        let v03_rest = PerBase::new(|base| old(Dialect::Rest, base));
        Self { offers, v1, v03, v03_rest }
    }

    fn of(&self, asked: &Asked<'_>) -> &Prepared {
        match (asked.base.or(asked.line).unwrap_or(ProtocolVersion::V1), asked.dialect) {
            (ProtocolVersion::V1, _) => self.v1.of(asked),
            (ProtocolVersion::V03, Dialect::Rpc) => self.v03.of(asked),
            (ProtocolVersion::V03, Dialect::Rest) => self.v03_rest.of(asked),
        }
    }
}

impl PerBase {
    fn new(prepare: impl Fn(Base) -> Prepared) -> Self {
        Self { root: prepare(Base::Root), line: prepare(Base::ProtocolVersion) }
    }

    fn of(&self, asked: &Asked<'_>) -> &Prepared {
        match asked.base {
            None => &self.root,
            Some(_) => &self.line,
        }
    }
}

impl OpenApi {
    fn new(deployment: &Deployment, preparing: &Preparing) -> Self {
        let document =
            |audience, readers| preparing.document(openapi::document(deployment, audience), readers);
        Self {
            anonymous: document(Audience::Anonymous, Readers::WhoeverHasNoCredential),
            authenticated: document(Audience::Authenticated, Readers::Callers),
        }
    }
}
