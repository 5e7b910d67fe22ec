//! The token with which a bridge identifies itself to the gateway.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use longshore_model::SessionId;

use crate::Secret;

/// The identity of a bridge, as stated by its token.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Token {
    /// A bridge of OpenCode, which may serve many sessions. Each of its calls must prove which session makes it.
    OpenCode,
    /// The bridge of one session.
    Session(SessionId),
    /// The bridge of a session that had no id when the bridge was started. [`crate::Tickets`] maps the ticket to the session.
    Ticket(String),
    /// A bridge of an agent that has no plugin and may use one bridge for several sessions. Its calls are refused.
    Untested,
}

impl Token {
    /// The token's text, for the environment of the bridge. It stays the same after a restart of the gateway.
    pub fn write(&self, secret: &Secret) -> String {
        let (kind, name) = self.parts();
        format!("{kind}.{}.{}", BASE64.encode(name), secret.sign(&["token", kind, name]))
    }

    /// Reads a token. `None`: the text was not written by a gateway of this data directory.
    pub fn read(text: &str, secret: &Secret) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let (name, signature) = rest.split_once('.')?;
        let name = String::from_utf8(BASE64.decode(name).ok()?).ok()?;
        if !secret.verifies(&["token", kind, &name], signature) {
            return None;
        }
        match kind {
            "opencode" => Some(Self::OpenCode),
            "session" => SessionId::parse(&name).ok().map(Self::Session),
            "ticket" => Some(Self::Ticket(name)),
            "untested" => Some(Self::Untested),
            _ => None,
        }
    }

    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::OpenCode => ("opencode", ""),
            Self::Session(session) => ("session", session.as_str()),
            Self::Ticket(name) => ("ticket", name),
            Self::Untested => ("untested", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_of_the_same_data_directory_is_read() {
        let (own, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let session = SessionId::parse("ses_1").unwrap();
        for token in
            [Token::OpenCode, Token::Session(session), Token::Ticket("abc".to_owned()), Token::Untested]
        {
            let text = token.write(&own);
            assert_eq!(Token::read(&text, &own), Some(token.clone()));
            assert_eq!(text, token.write(&own), "the token does not change");
            assert_eq!(Token::read(&text, &other), None);
        }
    }

    #[test]
    fn a_token_that_was_changed_is_refused() {
        let secret = Secret::new([1; 32]);
        let text = Token::Session(SessionId::parse("ses_1").unwrap()).write(&secret);
        let signature = text.rsplit('.').next().unwrap();
        let changed = [
            String::new(),
            "session".to_owned(),
            "session..".to_owned(),
            format!("session.{}.{signature}", BASE64.encode("ses_2")),
            format!("ticket.{}.{signature}", BASE64.encode("ses_1")),
            format!("opencode..{signature}"),
            format!("{text}A"),
            format!("session.***.{signature}"),
        ];
        for text in changed {
            assert_eq!(Token::read(&text, &secret), None, "{text}");
        }
    }
}
