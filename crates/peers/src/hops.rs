//! The chain of gateways whose agents called each other. This module signs this gateway's entry in the chain, and detects loops.
//!
//! Each gateway adds its own entry to the chain of a message before it sends the message on, and signs the chain so far. A gateway
//! that finds its own entry in a chain checks its signature. A wrong signature shows that an entry before its own was removed or
//! changed. The gateway cannot check the entries after its own: another gateway can leave out entries there, but not the entry of
//! this one.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use longshore_model::{Hop, Hops};
use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// How many hex digits of the signature are sent.
const SIGNATURE_DIGITS: usize = 32;

/// The longest id of a gateway in an error text, in characters.
const MAX_SHOWN: usize = 40;

/// The identity of this gateway in a chain. Both fields stay the same for as long as the data directory exists.
#[derive(Clone)]
pub struct Identity {
    id: String,
    key: SecretSlice<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.id)
    }
}

/// Limits for calls from agent to agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopRules {
    /// The most entries of a chain that the gateway accepts or sends.
    pub longest: usize,
    /// How often this gateway may already be in a chain that it accepts.
    pub returns: usize,
}

impl Default for HopRules {
    fn default() -> Self {
        Self { longest: 4, returns: 0 }
    }
}

impl Identity {
    /// Derives id and key from the secret of a data directory.
    pub fn of_secret(secret: &[u8; 32]) -> Self {
        let derived = |label: &[u8]| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
            mac.update(label);
            mac.finalize().into_bytes()
        };
        let id = hex(&derived(b"longshore gateway id")[..8]);
        Self::new(id, derived(b"longshore hops key").to_vec())
    }

    pub fn new(id: impl Into<String>, key: impl Into<SecretSlice<u8>>) -> Self {
        Self { id: id.into(), key: key.into() }
    }

    /// The chain with this gateway's signed entry added at its end.
    pub(crate) fn extend(&self, hops: &Hops) -> Hops {
        let mut all = hops.0.clone();
        all.push(Hop { gateway: self.id.clone(), signature: self.sign(&hops.0) });
        Hops(all)
    }

    /// Checks the chain of a message. `Err`: why the gateway refuses the message.
    pub(crate) fn check(&self, hops: &Hops, rules: HopRules) -> Result<(), String> {
        let mut own = 0;
        for (index, hop) in hops.0.iter().enumerate().filter(|(_, hop)| hop.gateway == self.id) {
            let expected = self.sign(&hops.0[..index]);
            if !bool::from(expected.as_bytes().ct_eq(hop.signature.as_bytes())) {
                return Err(format!(
                    "the chain of calls was changed: the signature of this gateway in it is wrong ({})",
                    shown(hops)
                ));
            }
            own += 1;
        }
        if own > rules.returns {
            return Err(format!("agents call each other in a loop: {} -> {}", shown(hops), cut(&self.id)));
        }
        if hops.0.len() > rules.longest {
            return Err(format!(
                "agents call each other over more than {} gateways: {} -> {}",
                rules.longest,
                shown(hops),
                cut(&self.id)
            ));
        }
        Ok(())
    }

    fn sign(&self, before: &[Hop]) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.key.expose_secret()).expect("HMAC takes keys of any length");
        mac.update(b"longshore hops 1\0");
        for gateway in before.iter().map(|hop| hop.gateway.as_str()).chain([self.id.as_str()]) {
            mac.update(&(gateway.len() as u64).to_le_bytes());
            mac.update(gateway.as_bytes());
        }
        hex(&mac.finalize().into_bytes()).chars().take(SIGNATURE_DIGITS).collect()
    }
}

/// The gateways of a chain as text for people.
pub(crate) fn shown(hops: &Hops) -> String {
    hops.gateways().map(cut).collect::<Vec<_>>().join(" -> ")
}

fn cut(gateway: &str) -> String {
    gateway.chars().filter(|c| longshore_client::is_plain(*c)).take(MAX_SHOWN).collect()
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(id: &str) -> Identity {
        Identity::new(id, id.repeat(32).into_bytes())
    }

    #[test]
    fn loops_and_long_chains_are_refused_and_named() {
        let (a, b, c) = (gateway("a"), gateway("b"), gateway("c"));
        let rules = HopRules { longest: 2, returns: 0 };
        let none = Hops::default();
        let from_b = b.extend(&a.extend(&none));
        assert_eq!(b.check(&a.extend(&none), rules), Ok(()));
        assert_eq!(c.check(&from_b, rules), Ok(()));
        let refusal = a.check(&from_b, rules).unwrap_err();
        assert!(refusal.ends_with("a -> b -> a"), "{refusal}");
        assert_eq!(a.check(&from_b, HopRules { returns: 1, ..rules }), Ok(()));
        let refusal = gateway("d").check(&c.extend(&from_b), rules).unwrap_err();
        assert!(refusal.contains("more than 2 gateways: a -> b -> c -> d"), "{refusal}");
    }

    #[test]
    fn a_chain_that_was_changed_before_the_own_entry_is_refused() {
        let (a, b) = (gateway("a"), gateway("b"));
        let rules = HopRules { longest: 9, returns: 9 };
        let chain = b.extend(&a.extend(&b.extend(&Hops::default())));
        assert_eq!(a.check(&chain, rules), Ok(()));
        let mut shortened = chain.clone();
        shortened.0.remove(0);
        let mut renamed = chain;
        renamed.0[0].gateway = "x".to_owned();
        let forged = Hops(vec![Hop { gateway: "a".to_owned(), signature: "00".repeat(16) }]);
        for changed in [shortened, renamed, forged] {
            assert!(a.check(&changed, rules).unwrap_err().contains("was changed"), "{changed:?}");
        }
    }
}
