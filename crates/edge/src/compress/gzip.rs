//! An encoder of gzip (RFC 1952) that is enough for JSON: earlier text is referred to, and what is left is written with
//! the fixed codes of DEFLATE (RFC 1951, 3.2.6). Codes made for the text would save a fifth more, at several times the
//! code.

/// How far back a reference may reach.
const WINDOW: usize = 32 * 1024;
const SHORTEST: usize = 4;
const LONGEST: usize = 258;
/// How many earlier places with the same beginning are looked at.
const TRIES: usize = 16;
const HASH_BITS: u32 = 14;
const END_OF_BLOCK: u16 = 256;
const NOWHERE: usize = usize::MAX;

/// The shortest length of each length code, and how many bits follow that say how much longer it is.
const LENGTHS: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// The same for distances.
const DISTANCES: [(usize, u32); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

const CRC: [u32; 256] = crc_table();

/// One text on its way. All calls must be given the same text.
pub(super) struct Encoder {
    out: Vec<u8>,
    bits: u64,
    bit_count: u32,
    /// What is compressed already.
    done: usize,
    crc: u32,
    /// The newest place of each hash.
    newest: Vec<usize>,
    /// For each place in the window the one before it of the same hash.
    before: Vec<usize>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        let mut encoder = Self {
            // No name, no time, an unknown system: the same text gives the same bytes.
            out: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff],
            bits: 0,
            bit_count: 0,
            done: 0,
            crc: u32::MAX,
            newest: vec![NOWHERE; 1 << HASH_BITS],
            before: vec![NOWHERE; WINDOW],
        };
        // One block, the last, with the fixed codes.
        encoder.put(0b011, 3);
        encoder
    }

    /// Compresses about so many bytes more. Says whether there is more to do.
    pub(super) fn step(&mut self, text: &[u8], bytes: usize) -> bool {
        let until = self.done.saturating_add(bytes).min(text.len());
        let begun = self.done;
        while self.done < until {
            let taken = if let Some((length, distance)) = self.earlier(text) {
                self.put_reference(length, distance);
                length
            } else {
                self.put_symbol(u16::from(text[self.done]));
                1
            };
            for at in self.done..self.done + taken {
                self.remember(text, at);
            }
            self.done += taken;
        }
        for byte in &text[begun..self.done] {
            let index = (self.crc ^ u32::from(*byte)) & 0xff;
            self.crc = CRC[index as usize] ^ (self.crc >> 8);
        }
        self.done < text.len()
    }

    /// The whole, once there is nothing more to do.
    pub(super) fn finish(mut self, text: &[u8]) -> Vec<u8> {
        self.put_symbol(END_OF_BLOCK);
        self.put(0, self.bit_count.wrapping_neg() % 8);
        self.out.extend((!self.crc).to_le_bytes());
        // The size modulo 2^32, as the format has it.
        let size = (text.len() as u64).to_le_bytes();
        self.out.extend(&size[..4]);
        self.out
    }

    /// The longest text before this place that goes on like this one: its length and how far back it is.
    fn earlier(&self, text: &[u8]) -> Option<(usize, usize)> {
        let here = self.done;
        let most = LONGEST.min(text.len() - here);
        let mut candidate = self.newest[hash(text, here)?];
        let (mut best, mut at) = (SHORTEST - 1, NOWHERE);
        for _ in 0..TRIES {
            // Of a place that is too far back it is not known any more what was before it.
            if candidate == NOWHERE || here - candidate > WINDOW {
                break;
            }
            let ours = text[here..here + most].iter();
            let length = ours.zip(&text[candidate..]).take_while(|(ours, theirs)| ours == theirs).count();
            if length > best {
                (best, at) = (length, candidate);
                if best == most {
                    break;
                }
            }
            candidate = self.before[candidate % WINDOW];
        }
        (at != NOWHERE).then(|| (best, here - at))
    }

    fn remember(&mut self, text: &[u8], at: usize) {
        if let Some(hash) = hash(text, at) {
            self.before[at % WINDOW] = self.newest[hash];
            self.newest[hash] = at;
        }
    }

    fn put_reference(&mut self, length: usize, distance: usize) {
        let (code, more, bits) = code_of(&LENGTHS, length);
        self.put_symbol(257 + code);
        self.put(more, bits);
        let (code, more, bits) = code_of(&DISTANCES, distance);
        self.put(reversed(code, 5), 5);
        self.put(more, bits);
    }

    /// A byte, the end, or a length, in the fixed code of 3.2.6.
    fn put_symbol(&mut self, symbol: u16) {
        let (code, bits) = match symbol {
            0..=143 => (0x30 + symbol, 8),
            144..=255 => (0x190 + symbol - 144, 9),
            256..=279 => (symbol - 256, 7),
            _ => (0xc0 + symbol - 280, 8),
        };
        self.put(reversed(code, bits), bits);
    }

    /// Writes the lowest bits of a number, at most 16, the lowest first.
    fn put(&mut self, value: u64, bits: u32) {
        self.bits |= value << self.bit_count;
        self.bit_count += bits;
        while self.bit_count >= 8 {
            self.out.push((self.bits & 0xff).to_le_bytes()[0]);
            self.bits >>= 8;
            self.bit_count -= 8;
        }
    }
}

/// The code of a value, and how much it is above the least of that code, in so many bits.
fn code_of(table: &[(usize, u32)], value: usize) -> (u16, u64, u32) {
    let index = table.partition_point(|(least, _)| *least <= value) - 1;
    let (least, bits) = table[index];
    let code = u16::try_from(index).expect("the tables are short");
    (code, (value - least) as u64, bits)
}

/// Codes are written with their highest bit first, unlike everything else.
fn reversed(code: u16, bits: u32) -> u64 {
    u64::from(code.reverse_bits() >> (16 - bits))
}

/// Of the bytes that a reference has at least. `None` at the end of the text.
fn hash(text: &[u8], at: usize) -> Option<usize> {
    let bytes = text.get(at..at + SHORTEST)?.first_chunk()?;
    Some((u32::from_le_bytes(*bytes).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize)
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index: u32 = 0;
    while index < 256 {
        let (mut value, mut bit) = (index, 0);
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[index as usize] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// By the program of that name, which is not ours.
    pub(in crate::compress) fn unzip(compressed: &[u8]) -> Vec<u8> {
        let mut program =
            Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = program.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || input.write_all(compressed).unwrap());
            program.wait_with_output().unwrap()
        });
        assert!(output.status.success(), "gzip does not understand this");
        output.stdout
    }

    fn encoded(text: &[u8], step: usize) -> Vec<u8> {
        let mut encoder = Encoder::new();
        while encoder.step(text, step) {}
        encoder.finish(text)
    }

    /// Numbers without a pattern, the same in every run.
    fn noise(count: usize) -> Vec<u8> {
        let mut state: u32 = 7;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn gzip_gives_back_what_was_compressed() {
        let words: Vec<u8> =
            noise(60_000).iter().flat_map(|byte| format!("word{} ", byte % 32).into_bytes()).collect();
        let far_apart =
            [noise(300), vec![b' '; WINDOW - 300], noise(300), vec![b'x'; 3 * WINDOW], noise(300)].concat();
        let cases = [
            Vec::new(),
            b"a".to_vec(),
            b"abc".to_vec(),
            b"abcabcabcabc".to_vec(),
            vec![b'a'; 257],
            vec![b'a'; 258],
            vec![b'a'; 259],
            vec![0; 100_000],
            (0..=255).collect(),
            "Übersicht € 𝄞 ".repeat(500).into_bytes(),
            noise(100_000),
            [noise(40_000), noise(40_000)].concat(),
            words,
            far_apart,
        ];
        for text in cases {
            let compressed = encoded(&text, usize::MAX);
            assert!(unzip(&compressed) == text, "{} bytes came back otherwise", text.len());
            // In steps of any size it is the same.
            for step in [1, 1000] {
                assert!(encoded(&text, step) == compressed, "{} bytes in steps of {step}", text.len());
            }
        }
    }

    #[test]
    fn every_length_and_distance_has_its_code() {
        for (table, last) in [(&LENGTHS[..], LONGEST), (&DISTANCES[..], WINDOW)] {
            for value in table[0].0..=last {
                let (code, more, bits) = code_of(table, value);
                let (least, _) = table[usize::from(code)];
                assert_eq!(least as u64 + more, value as u64);
                assert!(more < 1 << bits, "{value}");
            }
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_format() {
        let compressed = encoded(b"123456789", usize::MAX);
        let [.., a, b, c, d, 9, 0, 0, 0] = compressed[..] else { panic!("the size is not at the end") };
        assert_eq!(u32::from_le_bytes([a, b, c, d]), 0xcbf4_3926);
    }
}
