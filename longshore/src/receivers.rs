//! Decides which URLs callers may register for push notifications.

use longshore_engine::port::{BoxFuture, Receivers};
use longshore_model::{FieldViolation, PushRequest};
use longshore_outbound::Outbound;
use longshore_outbound::signing::SigningSecret;

/// The scheme whose credentials sign the body. With all other schemes, the credentials are sent in a header.
const SIGNING: &str = "StandardWebhooks";

/// Checks receivers with the address guard.
#[derive(Debug)]
pub(crate) struct GuardedReceivers(pub(crate) Outbound);

impl Receivers for GuardedReceivers {
    fn check<'a>(&'a self, request: &'a PushRequest) -> BoxFuture<'a, Result<(), FieldViolation>> {
        Box::pin(async move {
            let violation = |field: &str, description: String| {
                Err(FieldViolation { field: field.to_owned(), description })
            };
            if let Some(given) = &request.authentication
                && given.scheme.eq_ignore_ascii_case(SIGNING)
            {
                let secret = given.credentials.as_ref().map_or("", |secret| secret.expose());
                if let Err(error) = SigningSecret::parse(secret) {
                    return violation("authentication.credentials", error.to_string());
                }
            }
            match self.0.check(&request.url).await {
                Ok(()) => Ok(()),
                Err(refusal) => violation("url", refusal.to_string()),
            }
        })
    }
}
