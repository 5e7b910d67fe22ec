//! The turn of the agent for a prompt. The text of the prompt alone decides it.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use crate::fake_opencode::{Tool, Turn};

/// A prompt with this end makes the agent ask.
const ASKS: &str = " and ask";

/// Precedes the text that the demo model is to write, up to the next quotation mark.
const TEXT: &str = "text=\"";

/// The prompt for the fake.
pub(super) fn words(id: &str, asks: bool) -> String {
    format!("message {id}{}", if asks { ASKS } else { "" })
}

/// The prompt for the real OpenCode with the demo model, which reads its directives from the prompt.
pub(super) fn directives(id: &str, asks: bool, rng: &mut StdRng) -> String {
    let (pieces, delay) = (rng.random_range(20..60), rng.random_range(15..50));
    let clients: Vec<String> = (0..pieces).map(|piece| format!("[{piece} of {id}]")).collect();
    let text = format!("scn:text n={pieces} delay={delay} {TEXT}{}\"", clients.join(" "));
    let asking = if asks { format!("scn:bash cmd=\"touch {id}\" ") } else { String::new() };
    format!("message {id} {asking}{text}")
}

/// The complete answer of the demo model to these directives.
pub(super) fn whole(directives: &str) -> Option<String> {
    let (_, text) = directives.split_once(TEXT)?;
    text.split_once('"').map(|(text, _)| text.to_owned())
}

/// A turn of the fake: reasoning, text, tool calls and asks, at the pace of a model.
pub(super) fn turn(words: &str) -> Turn {
    let mut rng = StdRng::seed_from_u64(digest(words));
    let asks = words.ends_with(ASKS);
    let mut turn = Turn::new();
    if rng.random_bool(0.3) {
        turn = block(turn, "reasoning", words, &mut rng);
    }
    let blocks = rng.random_range(1..4);
    for number in 0..blocks {
        turn = block(turn, "text", words, &mut rng);
        let is_last = number + 1 == blocks;
        if asks && number == 0 {
            turn = turn.guarded_tool(Tool::bash("make harbour", "done\n"));
        } else if !is_last && rng.random_bool(0.6) {
            turn = turn.tool(Tool::bash("ls", "README.md\n"));
        }
    }
    if asks { block(turn, "text", words, &mut rng) } else { turn }
}

/// A text whose pieces contain their positions, so that a missing or doubled piece is noticed.
fn block(turn: Turn, kind: &'static str, words: &str, rng: &mut StdRng) -> Turn {
    let (pieces, pace) = (rng.random_range(3..30), Duration::from_millis(rng.random_range(5..60)));
    let part: u16 = rng.random();
    let pieces_of: Vec<String> =
        (0..pieces).map(|piece| format!("[{part:04x} {piece} of {words}] ")).collect();
    turn.paced(kind, &pieces_of.concat(), pieces, pace)
}

/// FNV-1a, which gives the same number for the same text on every machine.
fn digest(words: &str) -> u64 {
    words.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
