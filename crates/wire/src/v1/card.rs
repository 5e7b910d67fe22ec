//! The agent card of 1.0. It contains no fields of other versions, because strict readers refuse unknown fields.

use bytes::Bytes;
use longshore_model::card::Card;

use crate::card::{self, CardVersions};

/// The header that carries an API key.
pub const API_KEY_HEADER: &str = "X-API-Key";

/// Encodes a card. The same card always results in the same bytes, so that their hash can serve as an entity tag.
pub fn encode(card: &Card) -> Bytes {
    card::encode(card, CardVersions::V1)
}

#[cfg(test)]
mod tests {
    use a2a_pb::protojson::{AgentCard, security_scheme::Scheme};
    use longshore_model::card::AuthScheme;

    use super::*;
    use crate::card::tests::card;
    use crate::extension::{Extension, mark_required};

    #[test]
    fn the_largest_and_the_smallest_card() {
        insta::assert_snapshot!("full", std::str::from_utf8(&encode(&card())).unwrap());
        let open = Card {
            documentation_url: None,
            extended: false,
            schemes: Vec::new(),
            skills: Vec::new(),
            extensions: Vec::new(),
            ..card()
        };
        insta::assert_snapshot!("open", std::str::from_utf8(&encode(&open)).unwrap());
    }

    #[test]
    fn the_official_types_read_the_card() {
        let theirs: AgentCard = serde_json::from_slice(&encode(&card())).unwrap();
        let interfaces: Vec<_> = theirs
            .supported_interfaces
            .iter()
            .map(|interface| (interface.protocol_binding.as_str(), interface.protocol_version.as_str()))
            .collect();
        assert_eq!(interfaces, [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("GRPC", "1.0")]);
        let capabilities = theirs.capabilities.unwrap();
        assert_eq!(capabilities.streaming, Some(true));
        assert_eq!(capabilities.extended_agent_card, Some(true));
        assert_eq!(theirs.skills[0].input_modes, ["text/plain"]);
        assert_eq!(theirs.skills[0].output_modes, ["application/json"]);
        let uris: Vec<&str> = capabilities.extensions.iter().map(|theirs| theirs.uri.as_str()).collect();
        assert_eq!(uris, Extension::PUBLIC.map(Extension::uri));
        for theirs in &capabilities.extensions {
            assert!(!theirs.required && theirs.params.is_some(), "{theirs:?}");
        }
        let mut strict = card();
        mark_required(&mut strict.extensions, &[Extension::StreamHints]);
        let strict: AgentCard = serde_json::from_slice(&encode(&strict)).unwrap();
        let required: Vec<bool> =
            strict.capabilities.unwrap().extensions.iter().map(|theirs| theirs.required).collect();
        assert_eq!(required, [false, false, true, false]);
        assert_eq!(theirs.documentation_url.as_deref(), Some("https://example.com/docs"));
        assert_eq!(theirs.default_output_modes, ["text/plain", "application/json"]);
        assert_eq!((theirs.skills.len(), theirs.skills[0].examples.len()), (1, 1));

        let Some(Scheme::HttpAuthSecurityScheme(bearer)) = &theirs.security_schemes["bearerAuth"].scheme
        else {
            panic!("{:?}", theirs.security_schemes)
        };
        assert_eq!(bearer.scheme, "Bearer");
        let Some(Scheme::ApiKeySecurityScheme(key)) = &theirs.security_schemes["apiKeyAuth"].scheme else {
            panic!("{:?}", theirs.security_schemes)
        };
        assert_eq!((key.location.as_str(), key.name.as_str()), ("header", API_KEY_HEADER));
        // Each requirement names one scheme, and that scheme is defined.
        assert_eq!(theirs.security_requirements.len(), 3);
        for requirement in &theirs.security_requirements {
            assert_eq!(requirement.schemes.len(), 1);
            assert!(requirement.schemes.keys().all(|name| theirs.security_schemes.contains_key(name)));
        }
    }

    #[test]
    fn a_client_certificate_is_a_scheme() {
        let theirs: AgentCard =
            serde_json::from_slice(&encode(&Card { schemes: vec![AuthScheme::MutualTls], ..card() }))
                .unwrap();
        let scheme = &theirs.security_schemes["mutualTlsAuth"].scheme;
        assert!(matches!(scheme, Some(Scheme::MtlsSecurityScheme(_))), "{scheme:?}");
    }
}
