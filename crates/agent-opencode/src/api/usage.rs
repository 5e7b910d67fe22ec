//! The token usage of a step, as OpenCode counts it.

use longshore_model::{Cost, Usage};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize, Debug, Clone, Default)]
pub(crate) struct Tokens {
    /// Missing when the model's provider does not report it.
    #[serde(default, deserialize_with = "count")]
    total: u64,
    #[serde(default, deserialize_with = "count")]
    input: u64,
    #[serde(default, deserialize_with = "count")]
    output: u64,
    #[serde(default, deserialize_with = "count")]
    reasoning: u64,
    #[serde(default)]
    cache: CacheTokens,
}

#[derive(Deserialize, Debug, Clone, Default)]
struct CacheTokens {
    #[serde(default, deserialize_with = "count")]
    read: u64,
    #[serde(default, deserialize_with = "count")]
    write: u64,
}

impl Tokens {
    pub(crate) fn usage(&self, cost: f64) -> Usage {
        let Self { total, input, output, reasoning, cache } = self;
        // OpenCode counts each token once: a token that was read from a cache is not also input.
        let parts = [input, output, reasoning, &cache.read, &cache.write];
        let sum = parts.into_iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
        Usage {
            input: *input,
            output: *output,
            total: if *total == 0 { sum } else { *total },
            reasoning: *reasoning,
            cache_read: cache.read,
            cache_write: cache.write,
            cost: Cost::from_float(cost),
        }
    }
}

/// Deserializes an amount of money. OpenCode writes `null` if a provider reports none.
pub(super) fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    super::if_valid(deserializer).map(Option::unwrap_or_default)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float to integer cast saturates, and a negative count is treated as 0"
)]
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    amount(deserializer).map(|number| number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_leniently_and_a_missing_total_is_computed() {
        let cases = [
            (
                r#"{"total":112,"input":102,"output":0,"reasoning":20,"cache":{"write":0,"read":0}}"#,
                [102, 0, 112, 20, 0, 0],
            ),
            (r#"{"input":1,"output":2,"reasoning":4,"cache":{"read":8,"write":16}}"#, [1, 2, 31, 4, 8, 16]),
            (r#"{"input":null,"output":3.0,"reasoning":"many"}"#, [0, 3, 3, 0, 0, 0]),
            ("{}", [0; 6]),
        ];
        for (json, [input, output, total, reasoning, cache_read, cache_write]) in cases {
            let tokens: Tokens = serde_json::from_str(json).unwrap();
            let cost = Cost(500_000_000);
            let expected = Usage { input, output, total, reasoning, cache_read, cache_write, cost };
            assert_eq!(tokens.usage(0.5), expected, "{json}");
        }
    }
}
