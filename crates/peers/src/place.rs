//! Connects to a peer: fetches its card, and checks every address that the card or a model names.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use longshore_client::{Binding, Card, Client, Discovered, Discovery, Interface, Settings};
use longshore_model::{TraceContext, redact};
use longshore_outbound::Target;
use longshore_wire::extension::Extension;
use url::Url;

use crate::config::{CallLimits, Peer, PeersConfig, UrlRules};
use crate::tools::ToolError;

/// The longest error text of a peer that a model gets, in characters.
const MAX_ERROR: usize = 500;

/// The agents that can be called.
#[derive(Debug)]
pub(crate) struct Places {
    peers: Vec<Arc<Peer>>,
    urls: Option<UrlRules>,
    /// The cached card of each peer, by the peer's name.
    cards: HashMap<String, tokio::sync::Mutex<Discovery>>,
}

/// An agent that may be called: a configured peer, or a URL that a model named.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Peer(Arc<Peer>),
    Url(String),
}

impl Place {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Peer(peer) => &peer.name,
            Self::Url(url) => url,
        }
    }

    pub(crate) fn model_answers(&self) -> bool {
        match self {
            Self::Peer(peer) => peer.model_answers,
            // No operator has allowed models to answer the questions of this agent.
            Self::Url(_) => false,
        }
    }
}

impl Places {
    pub(crate) fn new(config: &PeersConfig) -> Self {
        let peers: Vec<_> = config.peers.iter().cloned().map(Arc::new).collect();
        let cards = peers.iter().map(|peer| (peer.name.clone(), tokio::sync::Mutex::default())).collect();
        Self { peers, urls: config.urls.clone(), cards }
    }

    pub(crate) fn peers(&self) -> &[Arc<Peer>] {
        &self.peers
    }

    /// Finds the agent that a model names. Neither sends a request nor resolves a host name.
    pub(crate) fn find(&self, name: &str) -> Result<Place, ToolError> {
        let name = name.trim();
        if let Some(peer) = self.peers.iter().find(|peer| peer.name == name) {
            return Ok(Place::Peer(Arc::clone(peer)));
        }
        let names = self.peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>().join(", ");
        let shown = redact::cut_at(&redact::public(name), 200);
        if !name.contains("://") {
            return Err(ToolError(format!(
                "There is no agent {shown:?}. The agents that can be called: {names}."
            )));
        }
        let Some(rules) = &self.urls else {
            return Err(ToolError(format!(
                "URLs cannot be called: this gateway calls only the agents that its operator configured, by name: {names}."
            )));
        };
        match rules.guard.read(name) {
            Ok(_) => Ok(Place::Url(name.to_owned())),
            Err(refusal) => Err(ToolError(format!(
                "The URL is refused: {refusal}. The agents that can be called by name: {names}."
            ))),
        }
    }

    pub(crate) fn limits(&self, place: &Place) -> CallLimits {
        match place {
            Place::Peer(peer) => peer.limits,
            Place::Url(_) => self.urls.as_ref().map_or_else(CallLimits::default, |urls| urls.limits),
        }
    }

    /// The card of a peer, from the cache while the cached card is fresh.
    pub(crate) async fn card(&self, peer: &Peer) -> longshore_client::Result<Discovered> {
        let Some(cards) = self.cards.get(&peer.name) else {
            return Discovery::new().find(&peer.url, &peer.settings).await;
        };
        cards.lock().await.find(&peer.url, &peer.settings).await
    }

    /// Connects a client to the agent. The error text is for the model.
    pub(crate) async fn connect(
        &self,
        place: &Place,
        trace: Option<TraceContext>,
    ) -> Result<Client, ConnectError> {
        match place {
            Place::Peer(peer) => {
                let Discovered { card, url, .. } = self.card(peer).await.map_err(ConnectError::Client)?;
                let settings = Settings { trace, extensions: extensions(&card), ..peer.settings.clone() };
                let usable = of_same_server(&card, &url, &settings)?;
                Client::of_card(usable, &url, settings).map_err(ConnectError::Client)
            }
            Place::Url(url) => {
                let rules =
                    self.urls.as_ref().ok_or_else(|| ConnectError::refused("URLs cannot be called."))?;
                let settings = Settings { trace, ..guarded(rules, url).await? };
                let found = Discovery::new().find(url, &settings).await.map_err(ConnectError::Client)?;
                let settings = Settings { extensions: extensions(&found.card), ..settings };
                // The guard has checked the addresses of this host and port only, so interfaces elsewhere are left out.
                let port = |url: &Url| (url.host_str().map(str::to_owned), url.port_or_known_default());
                let usable = filtered(&found.card, |interface| port(&interface.url) == port(&found.url))?;
                Client::of_card(usable, &found.url, settings).map_err(ConnectError::Client)
            }
        }
    }
}

/// Why the gateway could not connect to the agent.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Client(longshore_client::Error),
    /// The address guard or the check of the card refused.
    Refused(String),
}

impl ConnectError {
    fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }
}

/// Resolves the host of a URL, checks the addresses, and returns settings that connect to these addresses only.
async fn guarded(rules: &UrlRules, url: &str) -> Result<Settings, ConnectError> {
    let refused = |why: &dyn std::fmt::Display| ConnectError::refused(format!("The URL is refused: {why}."));
    let target: Target = rules.guard.read(url).map_err(|refusal| refused(&refusal))?;
    let host = target.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let addresses = if let Ok(address) = host.parse() {
        vec![address]
    } else {
        let resolving = tokio::time::timeout(rules.settings.card_timeout, rules.resolver.resolve(&host));
        let resolved = resolving.await.ok().and_then(Result::ok).filter(|all| !all.is_empty());
        resolved.ok_or_else(|| ConnectError::refused("The host of the URL cannot be resolved."))?
    };
    rules.guard.check_addresses(&target, &addresses).map_err(|refusal| refused(&refusal))?;
    let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, target.port())).collect();
    let bindings = vec![Binding::JsonRpc, Binding::Rest];
    Ok(Settings { addresses: Some(addresses), bindings, credential: None, ..rules.settings.clone() })
}

/// Removes the card's interfaces on other servers, because a card must not lead the gateway to, for example, an internal address.
/// gRPC may have a port of its own.
fn of_same_server(card: &Arc<Card>, url: &Url, settings: &Settings) -> Result<Arc<Card>, ConnectError> {
    // This check comes first because its error is clearer if the card offers no usable interface at all.
    card.choose(settings).map_err(ConnectError::Client)?;
    filtered(card, |interface| match interface.binding {
        Binding::Grpc => interface.url.host() == url.host() && interface.url.scheme() == url.scheme(),
        Binding::JsonRpc | Binding::Rest => interface.url.origin() == url.origin(),
    })
}

fn filtered(card: &Arc<Card>, is_allowed: impl Fn(&Interface) -> bool) -> Result<Arc<Card>, ConnectError> {
    let card = card.only(is_allowed);
    if card.interfaces.is_empty() {
        return Err(ConnectError::refused(
            "The card of the agent says that the agent is at another address than its card, and such an address is not called.",
        ));
    }
    Ok(Arc::new(card))
}

/// The extensions of the card that the gateway uses: they report asks and usage.
fn extensions(card: &Card) -> Vec<String> {
    const WANTED: [Extension; 2] = [Extension::StreamHints, Extension::InteractiveInterrupt];
    let is_wanted = |uri: &&str| Extension::parse(uri).is_some_and(|known| WANTED.contains(&known));
    listed(card).filter(is_wanted).map(str::to_owned).collect()
}

pub(crate) fn lists(card: &Card, extension: Extension) -> bool {
    listed(card).any(|uri| Extension::parse(uri) == Some(extension))
}

fn listed(card: &Card) -> impl Iterator<Item = &str> {
    let listed = card.json["capabilities"]["extensions"].as_array().into_iter().flatten();
    listed.filter_map(|extension| extension["uri"].as_str())
}

/// The error of a peer as text for a model: short, and without paths and secrets.
pub(crate) fn words(error: &longshore_client::Error) -> String {
    redact::cut_at(&redact::public(error.message()), MAX_ERROR)
}
