//! The headers of a notification.

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use longshore_model::{Entry, PushConfig, Timestamp, TraceContext};
use longshore_outbound::signing::{ID_HEADER, SIGNATURE_HEADER, SigningSecret, TIMESTAMP_HEADER};
use sha2::{Digest as _, Sha256};

const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The authentication scheme with which the credentials sign the body.
const SIGNED: &str = "StandardWebhooks";

/// An error: a secret of a configuration cannot be written in a header. The text does not contain the secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unusable(pub(crate) &'static str);

/// The value of `webhook-id`. It is the same in each attempt, and different for each event and configuration. It is a hash that
/// includes the event's epoch, because new events can reuse the numbers of events that a power failure lost.
pub(crate) fn webhook_id(config: &PushConfig, entry: &Entry) -> String {
    let mut hash = Sha256::new();
    for part in [config.task.as_str(), config.id.as_str(), &entry.id().to_string()] {
        // The zero byte separates the parts: no id contains it.
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hash = hash.finalize();
    let (number, _) = hash.split_first_chunk::<16>().expect("the hash has 32 bytes");
    format!("evt_{:032x}", u128::from_be_bytes(*number))
}

pub(crate) fn headers(
    config: &PushConfig,
    id: &str,
    now: Timestamp,
    trace: Option<&TraceContext>,
    body: &[u8],
) -> Result<HeaderMap, Unusable> {
    let seconds = now.0 / 1000;
    let plain = |text: &str| HeaderValue::from_str(text);
    let mut headers = HeaderMap::from_iter([
        // Not `application/a2a+json`: web frameworks parse a body as JSON only with this type, unless they are configured.
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HeaderName::from_static(ID_HEADER), plain(id).map_err(|_| Unusable("its id"))?),
        (HeaderName::from_static(TIMESTAMP_HEADER), HeaderValue::from(seconds)),
    ]);
    if let Some(token) = &config.token {
        let token = plain(token.expose()).map_err(|_| Unusable("the token is no value of a header"))?;
        headers.insert(TOKEN, secret(token));
    }
    if let Some(authentication) = &config.authentication {
        let scheme = authentication.scheme.trim();
        match &authentication.credentials {
            Some(credentials) if scheme.eq_ignore_ascii_case(SIGNED) => {
                let key = SigningSecret::parse(credentials.expose())
                    .map_err(|_| Unusable("the credentials are no secret of Standard Webhooks"))?;
                let signature = key.sign(id, seconds, body);
                let signature = plain(&signature).map_err(|_| Unusable("the signature"))?;
                headers.insert(HeaderName::from_static(SIGNATURE_HEADER), signature);
            }
            Some(credentials) => {
                let value = plain(&format!("{} {}", usual(scheme), credentials.expose()))
                    .map_err(|_| Unusable("the credentials are no value of a header"))?;
                headers.insert(AUTHORIZATION, secret(value));
            }
            None => {}
        }
    }
    if let Some(trace) = trace {
        headers.extend(plain(&trace.traceparent()).ok().map(|value| (TRACEPARENT, value)));
        headers.extend(trace.tracestate().and_then(|state| Some((TRACESTATE, plain(state).ok()?))));
    }
    Ok(headers)
}

/// The usual spelling of `Bearer` and `Basic`, because some receivers compare the scheme with regard to case.
fn usual(scheme: &str) -> &str {
    ["Bearer", "Basic"].into_iter().find(|usual| scheme.eq_ignore_ascii_case(usual)).unwrap_or(scheme)
}

/// Marks a header value as sensitive, so that `Debug` does not print it.
fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use longshore_model::{
        Epoch, PushAuthentication, Secret, Seq, StatusUpdate, TaskEvent, TaskState, TaskStatus,
    };
    use longshore_testkit::store_suite::push::config;

    use super::*;

    fn entry(seq: u64, epoch: u32) -> Entry {
        let status = TaskStatus { state: TaskState::Completed, at: Timestamp(1), message: None };
        let event = TaskEvent::Status(Box::new(StatusUpdate::new(status)));
        Entry { seq: Seq(seq), epoch: Epoch(epoch), event }
    }

    #[test]
    fn an_id_names_one_event_of_one_configuration() {
        let ids = [
            webhook_id(&config("t", "a"), &entry(1, 1)),
            webhook_id(&config("t", "a"), &entry(2, 1)),
            webhook_id(&config("t", "a"), &entry(1, 2)),
            webhook_id(&config("t", "b"), &entry(1, 1)),
            webhook_id(&config("u", "a"), &entry(1, 1)),
        ];
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert_eq!(ids[0], webhook_id(&config("t", "a"), &entry(1, 1)));
        assert_eq!(ids[0].len(), 36);
    }

    #[test]
    fn the_caller_is_named_as_its_configuration_says() {
        let with = |scheme: &str, credentials: Option<&str>| {
            let mut config = config("t", "a");
            let credentials = credentials.map(Secret::new);
            config.authentication = Some(PushAuthentication { scheme: scheme.to_owned(), credentials });
            config
        };
        let trace = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        let of = |config: &PushConfig| headers(config, "evt_1", Timestamp(7_999), Some(&trace), b"{}");
        for (scheme, expected) in
            [("bearer", "Bearer c"), ("BASIC", "Basic c"), ("ApiKey", "ApiKey c"), (" Bearer ", "Bearer c")]
        {
            let headers = of(&with(scheme, Some("c"))).unwrap();
            assert_eq!(headers[AUTHORIZATION], expected);
            assert!(!format!("{headers:?}").contains(expected));
            assert_eq!(headers[TOKEN], "planted-token");
            assert_eq!(
                (&headers["webhook-id"], &headers["webhook-timestamp"]),
                (&"evt_1".parse().unwrap(), &"7".parse().unwrap())
            );
            assert_eq!(headers[TRACEPARENT], trace.traceparent());
            assert_eq!(headers[CONTENT_TYPE], "application/json");
        }
        assert_eq!(of(&with("Bearer", None)).unwrap().get(AUTHORIZATION), None);
        let signed = of(&with("standardwebhooks", Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))).unwrap();
        assert!(signed["webhook-signature"].to_str().unwrap().starts_with("v1,"));
        assert_eq!(signed.get(AUTHORIZATION), None);
        for config in [with("StandardWebhooks", Some("planted")), with("Bearer", Some("planted\r\nx: y"))] {
            assert!(!of(&config).unwrap_err().0.contains("planted"));
        }
    }
}
