//! Evaluates conditional requests: `If-None-Match`, then `Range` with its `If-Range`.
//!
//! `If-Modified-Since` is ignored: a client that has the date of a response also has its entity tag.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use http::header::{HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, Method};
use longshore_model::Timestamp;

/// The latest second that an HTTP date can express: the end of the year 9999.
const LATEST: u64 = 253_402_300_799;

/// The part of a file that is sent in the response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Selection {
    Whole,
    /// A range of bytes that is not empty and lies within the file.
    Part(Range<u64>),
    /// The client already has the file.
    Unchanged,
    /// The range contains no byte of the file.
    Unsatisfiable,
}

/// The validators of a file, which the response contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validators<'a> {
    /// The entity tag, with its quotes.
    pub(crate) tag: &'a str,
    pub(crate) last_modified: &'a str,
}

pub(crate) fn select(verb: &Method, headers: &HeaderMap, file: Validators<'_>, size: u64) -> Selection {
    if matches_tag(headers, file.tag) {
        return Selection::Unchanged;
    }
    // Ranges are defined only for GET. If the client has another version of the file, a range of this version would not match it.
    if verb != Method::GET || !is_same_version(headers, file) {
        return Selection::Whole;
    }
    match single(headers, &RANGE) {
        Some(range) => ranged(range, size),
        None => Selection::Whole,
    }
}

/// The entity tag for a digest, in quotes.
pub(crate) fn tag(sha256: &[u8]) -> String {
    let mut tag = String::with_capacity(66);
    tag.push('"');
    for byte in sha256 {
        write!(tag, "{byte:02x}").expect("writing to a string cannot fail");
    }
    tag.push('"');
    tag
}

pub(crate) fn http_date(at: Timestamp) -> String {
    let seconds = u64::try_from(at.0 / 1000).unwrap_or_default().min(LATEST);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Whether `If-None-Match` lists this tag. Weak comparison: the prefix `W/` does not count.
pub(crate) fn matches_tag(headers: &HeaderMap, tag: &str) -> bool {
    let ours = opaque(tag);
    let given = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).map(str::trim).any(|tag| tag == "*" || opaque(tag) == ours)
}

fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Whether `If-Range` names this version of the file. Strong comparison, because two weakly equal versions may differ in their
/// bytes. A file never changes under its id, so its date is as good as its tag. The date is compared as text, because a client
/// sends back the text that it received.
fn is_same_version(headers: &HeaderMap, file: Validators<'_>) -> bool {
    if !headers.contains_key(IF_RANGE) {
        return true;
    }
    single(headers, &IF_RANGE).is_some_and(|given| given == file.tag || given == file.last_modified)
}

/// Parses the value of a `Range` header that names one range of bytes. Any other value, such as several ranges or a range that ends
/// before it begins, is ignored.
fn ranged(value: &str, size: u64) -> Selection {
    let Some((unit, range)) = value.split_once('=') else { return Selection::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Selection::Whole;
    }
    let Some((first, last)) = range.trim().split_once('-') else { return Selection::Whole };
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Some(first), None) if last.is_empty() => first..size,
        (None, Some(0)) if first.is_empty() => return Selection::Unsatisfiable,
        // "The last n bytes" of an empty file are the whole file, and no byte range could describe them.
        (None, Some(_)) if first.is_empty() && size == 0 => return Selection::Whole,
        (None, Some(count)) if first.is_empty() => size.saturating_sub(count)..size,
        _ => return Selection::Whole,
    };
    if range.is_empty() { Selection::Unsatisfiable } else { Selection::Part(range) }
}

/// Parses digits. A number that does not fit becomes `u64::MAX`, which is beyond the end of every file.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// The only value of a header. A header that occurs twice is ignored.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?.trim();
    if values.next().is_some() { None } else { Some(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Validators<'_> =
        Validators { tag: "\"abc\"", last_modified: "Sun, 06 Nov 1994 08:49:37 GMT" };

    fn selected(verb: &Method, pairs: &[(HeaderName, &str)], size: u64) -> Selection {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        select(verb, &headers, FILE, size)
    }

    #[test]
    fn if_none_match_lists_tags_or_a_star() {
        let cases: [(&[(HeaderName, &str)], bool); 12] = [
            (&[], false),
            (&[(IF_NONE_MATCH, "\"abc\"")], true),
            (&[(IF_NONE_MATCH, "W/\"abc\"")], true),
            (&[(IF_NONE_MATCH, "\"x\", W/\"abc\" ,\"y\"")], true),
            (&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"abc\"")], true),
            (&[(IF_NONE_MATCH, "*")], true),
            (&[(IF_NONE_MATCH, " * ")], true),
            (&[(IF_NONE_MATCH, "\"*\"")], false),
            (&[(IF_NONE_MATCH, "abc")], false),
            (&[(IF_NONE_MATCH, "w/\"abc\"")], false),
            (&[(IF_NONE_MATCH, "\"ab\", \"abcd\"")], false),
            (&[(IF_NONE_MATCH, "")], false),
        ];
        for (pairs, expected) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value.parse().unwrap());
            }
            assert_eq!(matches_tag(&headers, FILE.tag), expected, "{pairs:?}");
        }
    }

    #[test]
    fn every_timestamp_has_a_date() {
        for (millis, expected) in [
            (784_111_777_999, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-5, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(Timestamp(millis)), expected);
        }
    }

    #[test]
    fn one_range_of_bytes_is_supported() {
        use Selection::{Part, Unsatisfiable, Whole};

        let cases = [
            ("bytes=0-0", 10, Part(0..1)),
            ("bytes=0-9", 10, Part(0..10)),
            ("bytes=3-5", 10, Part(3..6)),
            ("bytes=3-", 10, Part(3..10)),
            ("bytes=9-", 10, Part(9..10)),
            ("bytes=-3", 10, Part(7..10)),
            ("bytes=-10", 10, Part(0..10)),
            ("bytes=-11", 10, Part(0..10)),
            ("bytes=5-99", 10, Part(5..10)),
            ("bytes=5-99999999999999999999999", 10, Part(5..10)),
            ("bytes=0-18446744073709551615", 10, Part(0..10)),
            ("BYTES = 1-2 ", 10, Part(1..3)),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=10-12", 10, Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Unsatisfiable),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=0-0", 0, Unsatisfiable),
            ("bytes=-5", 0, Whole),
            // Several ranges, another unit, and texts that are not a range.
            ("bytes=0-1,3-4", 10, Whole),
            ("bytes=0-1,", 10, Whole),
            ("lines=0-1", 10, Whole),
            ("bytes=5-3", 10, Whole),
            ("bytes=-", 10, Whole),
            ("bytes=", 10, Whole),
            ("bytes", 10, Whole),
            ("bytes=a-b", 10, Whole),
            ("bytes=+1-2", 10, Whole),
            ("bytes=1-2x", 10, Whole),
            ("bytes=--1", 10, Whole),
            ("bytes=1 - 2", 10, Whole),
            ("", 10, Whole),
        ];
        for (range, size, expected) in cases {
            assert_eq!(selected(&Method::GET, &[(RANGE, range)], size), expected, "{range} of {size}");
        }
        let twice = [(RANGE, "bytes=0-1"), (RANGE, "bytes=0-1")];
        assert_eq!(selected(&Method::GET, &twice, 10), Whole);
        assert_eq!(selected(&Method::HEAD, &[(RANGE, "bytes=0-1")], 10), Whole);
        assert_eq!(selected(&Method::HEAD, &[(RANGE, "bytes=99-")], 10), Whole);
    }

    #[test]
    fn a_range_of_another_version_gets_the_whole_file() {
        let cases = [
            ("\"abc\"", true),
            (" \"abc\" ", true),
            (FILE.last_modified, true),
            ("W/\"abc\"", false),
            ("\"abcd\"", false),
            ("abc", false),
            ("*", false),
            ("", false),
            ("\"abc\", \"x\"", false),
            ("Sun, 06 Nov 1994 08:49:38 GMT", false),
        ];
        for (given, is_same) in cases {
            let found = selected(&Method::GET, &[(RANGE, "bytes=0-1"), (IF_RANGE, given)], 10);
            assert_eq!(found == Selection::Part(0..2), is_same, "{given}");
            assert_eq!(found == Selection::Whole, !is_same, "{given}");
        }
        let twice = [(RANGE, "bytes=0-1"), (IF_RANGE, "\"abc\""), (IF_RANGE, "\"abc\"")];
        assert_eq!(selected(&Method::GET, &twice, 10), Selection::Whole);
        // Without a range, `If-Range` has no effect. A range beyond the end of another version is no error.
        assert_eq!(selected(&Method::GET, &[(IF_RANGE, "\"abc\"")], 10), Selection::Whole);
        assert_eq!(
            selected(&Method::GET, &[(RANGE, "bytes=99-"), (IF_RANGE, "\"x\"")], 10),
            Selection::Whole
        );
    }

    #[test]
    fn a_matching_tag_counts_before_a_range() {
        for verb in [Method::GET, Method::HEAD] {
            let pairs = |tag| [(IF_NONE_MATCH, tag), (RANGE, "bytes=99-")];
            assert_eq!(selected(&verb, &pairs("W/\"abc\""), 10), Selection::Unchanged);
            assert_ne!(selected(&verb, &pairs("\"x\""), 10), Selection::Unchanged);
        }
    }
}
