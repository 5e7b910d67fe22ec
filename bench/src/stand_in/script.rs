//! The script in the text of a prompt: `bench key=a1 n=200 rate=10 burst=0 size=24 ramp=500 await=1 hold=0`.

use std::fmt;

/// How many times faster the deltas of a burst are.
const BURST_SPEED: u64 = 50;
/// A turn, as the text of its prompt describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The name under which `/bench/turn` shows the sent text of the turn. Empty: the turn is not kept there.
    pub key: String,
    /// How many deltas the turn sends.
    pub deltas: u64,
    /// Deltas per second. 0: all at once.
    pub rate: u64,
    /// How many of the first deltas are sent [`BURST_SPEED`] times as fast.
    pub burst: u64,
    /// The length of each delta in bytes.
    pub size: usize,
    /// How long the turn works before its first delta, in milliseconds.
    pub ramp_ms: u64,
    /// The turn begins when as many readers of the event stream have connected as there are turns with this option, or after
    /// two seconds. Meant for a server that opens one stream per turn, and opens it only after the prompt.
    pub awaits_reader: bool,
    /// The turn waits before its ramp until `/bench/release`.
    pub is_held: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            key: String::new(),
            deltas: 1,
            rate: 0,
            burst: 0,
            size: 24,
            ramp_ms: 0,
            awaits_reader: false,
            is_held: false,
        }
    }
}

impl Script {
    /// Reads a prompt. Unknown words are ignored: a prompt may contain any text.
    pub fn read(prompt: &str) -> Self {
        let mut script = Self::default();
        for (name, value) in prompt.split_whitespace().filter_map(|word| word.split_once('=')) {
            let number = || value.parse::<u64>().ok();
            match name {
                "key" => value.clone_into(&mut script.key),
                "n" => script.deltas = number().unwrap_or(script.deltas),
                "rate" => script.rate = number().unwrap_or(script.rate),
                "burst" => script.burst = number().unwrap_or(script.burst),
                "size" => script.size = value.parse().unwrap_or(script.size),
                "ramp" => script.ramp_ms = number().unwrap_or(script.ramp_ms),
                "await" => script.awaits_reader = value == "1",
                "hold" => script.is_held = value == "1",
                _ => {}
            }
        }
        script
    }

    /// The time between two deltas.
    pub fn interval_ns(&self) -> u64 {
        1_000_000_000_u64.checked_div(self.rate).unwrap_or_default()
    }

    /// The time from one delta, counted from 0, to the next.
    pub fn interval_after_ns(&self, number: u64) -> u64 {
        if number < self.burst { self.interval_ns() / BURST_SPEED } else { self.interval_ns() }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, deltas, rate, burst, size, ramp_ms, awaits_reader, is_held } = self;
        let (awaits, hold) = (u8::from(*awaits_reader), u8::from(*is_held));
        write!(
            f,
            "bench key={key} n={deltas} rate={rate} burst={burst} size={size} ramp={ramp_ms} await={awaits} hold={hold}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_script_is_read_back() {
        let key = "a1".to_owned();
        let script = Script {
            key,
            deltas: 7,
            rate: 3,
            burst: 2,
            size: 99,
            ramp_ms: 5,
            awaits_reader: true,
            is_held: true,
        };
        assert_eq!(Script::read(&script.to_string()), script);
        assert_eq!(Script::read("Hello, what is 1+1=2 n=x?"), Script::default());
        assert_eq!(script.interval_ns(), 333_333_333);
        assert_eq!([1, 2].map(|number| script.interval_after_ns(number)), [6_666_666, 333_333_333]);
        assert_eq!(Script::default().interval_ns(), 0);
    }
}
