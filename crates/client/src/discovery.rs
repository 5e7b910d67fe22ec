//! Finds and reads the card of an agent.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::header::{DATE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{Response, StatusCode};
use tokio::time::Instant;
use url::Url;

use crate::card::Card;
use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use crate::{Result, http};

/// The well-known paths of the card below an agent's URL. The second is that of the oldest agents.
const WELL_KNOWN: [&str; 2] = [".well-known/agent-card.json", ".well-known/agent.json"];

/// The most redirects that are followed. They must stay on the same server.
const MAX_REDIRECTS: usize = 3;

/// A card, and the URL where it was found.
#[derive(Clone, Debug)]
pub struct Discovered {
    pub card: Arc<Card>,
    pub url: Url,
    /// The `Date` header of the response.
    pub date: Option<String>,
}

/// Reads and caches cards (see [`crate::CardCache`]). It also keeps their entity tags, so that an unchanged card is not sent again.
#[derive(Debug, Default)]
pub struct Discovery {
    /// The cached cards, by the URL that the caller gave.
    known: HashMap<Url, Known>,
}

/// A cached card.
#[derive(Debug)]
struct Known {
    found: Discovered,
    tag: Option<HeaderValue>,
    /// When the agent last confirmed that this is its current card.
    confirmed: Instant,
    used: Instant,
}

impl Discovery {
    pub fn new() -> Self {
        Self::default()
    }

    /// Finds the card of an agent. `url`: the URL of the agent or of its card.
    pub async fn find(&mut self, url: &str, settings: &Settings) -> Result<Discovered> {
        let url = parse(url)?;
        let now = Instant::now();
        if let Some(known) = self.known.get_mut(&url) {
            known.used = now;
            if settings.cache.lifetime.is_none_or(|lifetime| now - known.confirmed < lifetime) {
                return Ok(known.found.clone());
            }
        }
        // One timeout for all attempts together.
        let timeout = settings.card_timeout;
        let found = tokio::time::timeout(timeout, self.try_each(&url, settings)).await;
        let (found, tag) = found.unwrap_or_else(|_| {
            let text =
                format!("{} did not send its card within {} s.", http::shown(&url), timeout.as_secs_f32());
            Err(Error::new(ErrorKind::Timeout, text))
        })?;
        self.keep(
            url,
            Known { found: found.clone(), tag, confirmed: now, used: now },
            settings.cache.capacity,
        );
        Ok(found)
    }

    fn keep(&mut self, url: Url, card: Known, capacity: usize) {
        self.known.insert(url, card);
        while self.known.len() > capacity {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(url, _)| url.clone());
            oldest.map(|url| self.known.remove(&url));
        }
    }

    async fn try_each(&self, url: &Url, settings: &Settings) -> Result<(Discovered, Option<HeaderValue>)> {
        let client = http::client(url, settings)?;
        let known = self.known.get(url);
        let mut first_error = None;
        // Try the URL where the card was found last time first.
        let places = known.map(|known| known.found.url.clone()).into_iter().chain(candidates(url));
        for candidate in places {
            match read(&client, candidate, known, settings).await {
                Ok(found) => return Ok(found),
                // Only if the page is missing, the next URL is tried.
                Err((StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, error)) => {
                    first_error.get_or_insert(error);
                }
                Err((_, error)) => return Err(error),
            }
        }
        Err(first_error.unwrap_or_else(|| Error::invalid_response("There is no place for a card.")))
    }
}

/// Reads the card at a URL and its entity tag. An error comes with the status of the response.
async fn read(
    client: &reqwest::Client,
    mut url: Url,
    known: Option<&Known>,
    settings: &Settings,
) -> Result<(Discovered, Option<HeaderValue>), (StatusCode, Error)> {
    let mut headers = HeaderMap::new();
    let mut redirects = 0;
    loop {
        let mut request =
            client.get(url.clone()).headers(headers.clone()).header("accept", "application/json");
        let known = known.filter(|known| known.found.url == url);
        if let Some(tag) = known.and_then(|known| known.tag.as_ref()) {
            request = request.header(IF_NONE_MATCH, tag);
        }
        let ok = |error| (StatusCode::OK, error);
        settings.check_guard().map_err(ok)?;
        let response = http::send(request, settings.card_timeout).await.map_err(ok)?;
        let status = response.status();
        if let (StatusCode::NOT_MODIFIED, Some(known)) = (status, known) {
            let card = Arc::clone(&known.found.card);
            return Ok((Discovered { card, url, date: date(&response) }, known.tag.clone()));
        }
        if status.is_redirection() {
            redirects += 1;
            url = same_server(&response)
                .filter(|_| redirects <= MAX_REDIRECTS)
                .ok_or_else(|| (status, http::redirected(&response)))?;
            continue;
        }
        // A public card needs no credential, so the credential is sent only after the agent has asked for one.
        if status == StatusCode::UNAUTHORIZED
            && headers.is_empty()
            && let Some(credential) = &settings.credential
        {
            headers = http::authorization(credential, None).map_err(|error| (status, error))?;
            continue;
        }
        let (tag, date) = (response.headers().get(ETAG).cloned(), date(&response));
        let json = http::json(response, settings.limits.card, settings.card_timeout).await;
        let card = json.and_then(|json| Card::read(json, &url)).map_err(|error| (status, error))?;
        return Ok((Discovered { card: Arc::new(card), url, date }, tag));
    }
}

fn date(response: &Response) -> Option<String> {
    Some(response.headers().get(DATE)?.to_str().ok()?.to_owned())
}

/// Parses and checks the URL of an agent.
pub(crate) fn parse(text: &str) -> Result<Url> {
    let input =
        |why: &str| Error::new(ErrorKind::Input, format!("The URL of the agent cannot be used: {why}."));
    let url = Url::parse(text.trim()).map_err(|_| input("it must begin with http:// or https://"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(input("it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(input("it contains a user name or password; give these in the environment"));
    }
    Ok(url)
}

/// The URLs where the card may be, the likeliest first. If `url` is that of a card, it is the only one.
fn candidates(url: &Url) -> Vec<Url> {
    let is_card = url.path().contains("/.well-known/") || url.path().to_ascii_lowercase().ends_with(".json");
    if is_card {
        return vec![url.clone()];
    }
    let below = |path: &str| {
        let mut base = url.clone();
        base.set_query(None);
        base.set_fragment(None);
        base.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        base
    };
    let at_root = |path: &str| url.join(&format!("/{path}")).ok();
    // Some agents serve their card at the root of the server although their URL has a path.
    let mut all = vec![below(WELL_KNOWN[0])];
    for place in
        at_root(WELL_KNOWN[0]).into_iter().chain([below(WELL_KNOWN[1])]).chain(at_root(WELL_KNOWN[1]))
    {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    all
}

/// The target of a redirect, if it is on the same server. Another server could be on an internal network, so it is not followed.
fn same_server(response: &Response) -> Option<Url> {
    let target = response.headers().get(LOCATION)?.to_str().ok()?;
    let target = response.url().join(target).ok()?;
    (target.origin() == response.url().origin()).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_is_looked_for_below_the_url_and_at_the_root() {
        let cases: [(&str, &[&str]); 4] = [
            ("http://a:1", &["http://a:1/.well-known/agent-card.json", "http://a:1/.well-known/agent.json"]),
            (
                "http://a/base/?x=1#y",
                &[
                    "http://a/base/.well-known/agent-card.json",
                    "http://a/.well-known/agent-card.json",
                    "http://a/base/.well-known/agent.json",
                    "http://a/.well-known/agent.json",
                ],
            ),
            ("http://a/.well-known/agent-card.json", &["http://a/.well-known/agent-card.json"]),
            ("http://a/cards/one.JSON", &["http://a/cards/one.JSON"]),
        ];
        for (url, expected) in cases {
            let found: Vec<String> =
                candidates(&parse(url).unwrap()).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn only_a_plain_http_url_is_accepted() {
        for (url, reason) in [
            ("127.0.0.1:8000", "must begin with http://"),
            ("localhost:8000", "must begin with http://"),
            ("ftp://a/", "must begin with http://"),
            ("http://user:pass@a/", "user name or password"),
            ("", "must begin with http://"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.kind() == ErrorKind::Input && error.message().contains(reason), "{url}: {error}");
        }
    }
}
