//! Encodes the agent card of 0.3, and the merged card for clients of both versions.

use bytes::Bytes;
use longshore_model::card::Card;

use super::Dialect;
use crate::card::{self, CardVersions};

/// The card for clients that only use 0.3. In a REST response, its security schemes also have the format of ProtoJSON, which some
/// clients expect there.
pub fn encode(card: &Card, dialect: Dialect) -> Bytes {
    let versions = match dialect {
        Dialect::Rpc => CardVersions::V03,
        Dialect::Rest => CardVersions::V03Rest,
    };
    card::encode(card, versions)
}

/// One card for clients of both versions, with the fields of both. Only a reader that refuses unknown fields needs the card of its
/// own version.
pub fn merged(card: &Card) -> Bytes {
    card::encode(card, CardVersions::Both)
}

#[cfg(test)]
mod tests {
    use a2a_pb::protojson::AgentCard;
    use serde_json::Value;

    use super::*;
    use crate::card::tests::card;
    use crate::extension::Extension;
    use crate::v1;

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn the_largest_and_the_smallest_card() {
        let open = Card { extended: false, schemes: Vec::new(), extensions: Vec::new(), ..card() };
        for (name, bytes) in [
            ("pure", encode(&card(), Dialect::Rpc)),
            ("pure_open", encode(&open, Dialect::Rpc)),
            ("merged", merged(&card())),
            ("merged_open", merged(&open)),
        ] {
            insta::assert_snapshot!(name, str::from_utf8(&bytes).unwrap());
        }
    }

    /// Collects the paths at which `part` has a value that `whole` lacks or that differs in `whole`.
    fn lacks(whole: &Value, part: &Value, path: &str, missing: &mut Vec<String>) {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                for (key, value) in part {
                    lacks(whole.get(key).unwrap_or(&Value::Null), value, &format!("{path}.{key}"), missing);
                }
            }
            // Lists of the merged card may have more entries.
            (Value::Array(whole), Value::Array(part)) => {
                for entry in part.iter().filter(|entry| !whole.contains(entry)) {
                    missing.push(format!("{path}[{entry}]"));
                }
            }
            _ if whole == part => {}
            _ => missing.push(path.to_owned()),
        }
    }

    #[test]
    fn the_merged_card_has_all_fields_of_both_versions() {
        let both = value(&merged(&card()));
        let mut missing = Vec::new();
        lacks(&both, &value(&v1::card::encode(&card())), "", &mut missing);
        assert_eq!(missing, [""; 0]);
        let mut old = value(&encode(&card(), Dialect::Rest));
        // Readers treat an absent field as false.
        old["capabilities"]["stateTransitionHistory"].take();
        for entry in old["capabilities"]["extensions"].as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove("required");
        }
        lacks(&both, &old, "", &mut missing);
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn the_official_types_of_1_0_read_the_merged_card() {
        let theirs: AgentCard = serde_json::from_slice(&merged(&card())).unwrap();
        let interfaces = theirs.supported_interfaces.iter();
        let versions: Vec<&str> = interfaces.map(|interface| interface.protocol_version.as_str()).collect();
        assert_eq!(versions, ["1.0", "1.0", "1.0", "0.3", "0.3", "0.3"]);
        assert_eq!(theirs.capabilities.unwrap().extended_agent_card, Some(true));
        assert!(theirs.security_schemes.values().all(|scheme| scheme.scheme.is_some()));
    }

    #[test]
    fn an_extension_has_the_uri_of_each_version() {
        let uris = |card: &Value| -> Vec<String> {
            let entries = card["capabilities"]["extensions"].as_array().unwrap();
            entries.iter().map(|entry| entry["uri"].as_str().unwrap().to_owned()).collect()
        };
        let old = Extension::PUBLIC.map(|extension| extension.uri_v03().into_owned());
        let new = Extension::PUBLIC.map(|extension| extension.uri().to_owned());
        assert_eq!(uris(&value(&encode(&card(), Dialect::Rpc))), old);
        assert_eq!(uris(&value(&merged(&card()))), [new, old].concat());

        // An extension with one URI for both versions is listed once.
        let mut exposed = card();
        exposed.extensions = crate::extension::tests::declared(&[Extension::ThinkingExposure]);
        let expected = [Extension::ThinkingExposure.uri()];
        assert_eq!(uris(&value(&merged(&exposed))), expected);
        assert_eq!(uris(&value(&encode(&exposed, Dialect::Rest))), expected);
    }
}
