//! `file:` URLs: extracts the path. Does no IO; other modules check whether the file exists.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::percent;

/// Parses the part after `file:`. The error is a text for the caller.
///
/// The URL is parsed by hand: a parser for the web resolves `..`, `%2e` and backslashes before they can be checked.
pub(super) fn parse(rest: &str) -> Result<PathBuf, &'static str> {
    if rest.contains(|c: char| c.is_control()) {
        return Err("the file:// URL holds control characters; write them as %XX");
    }
    if rest.contains(['?', '#']) {
        return Err("a file:// URL has no query and no fragment; write ? as %3F and # as %23");
    }
    let rest = rest.strip_prefix("//").ok_or("a file URL is written file:///path/of/the/file")?;
    let (host, path) =
        rest.find('/').map(|at| rest.split_at(at)).ok_or("a file URL is written file:///path/of/the/file")?;
    if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
        return Err("the file:// URL names another host; only files of this host can be referred to");
    }
    // A file name cannot contain a slash. If `%2f` counted as a separator, a person who reads the URL would not see the
    // real path.
    if path.as_bytes().windows(3).any(|escape| escape.eq_ignore_ascii_case(b"%2f")) {
        return Err("the file:// URL has an encoded slash; write / between the names of the path");
    }
    let path = percent::decode(path)
        .ok_or("the file:// URL has a % that is not followed by two hexadecimal digits; write % as %25")?;
    if path.contains(&0) {
        return Err("the file:// URL holds a NUL, which no path has");
    }
    Ok(PathBuf::from(OsString::from_vec(path)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_decoded_once() {
        let table: &[(&str, &[u8])] = &[
            ("///a/b.txt", b"/a/b.txt"),
            ("//localhost/a", b"/a"),
            ("//LocalHost/a", b"/a"),
            ("///a%20b/%C3%A9", "/a b/é".as_bytes()),
            ("///a b/é", "/a b/é".as_bytes()),
            // `..` is resolved later, when the symbolic links of the path are known.
            ("///a/../b", b"/a/../b"),
            ("///a/%2e%2E/b", b"/a/../b"),
            ("///a/%252e%252e/b", b"/a/%2e%2e/b"),
            ("///a%252fb", b"/a%2fb"),
            ("///a\\..\\b", b"/a\\..\\b"),
            ("///%ff", b"/\xff"),
            ("///a%3Fb%23c%0A", b"/a?b#c\n"),
            ("////a", b"//a"),
            ("///", b"/"),
        ];
        for (url, expected) in table {
            assert_eq!(
                parse(url).map(|path| path.as_os_str().as_bytes().to_vec()),
                Ok(expected.to_vec()),
                "{url}"
            );
        }
    }

    #[test]
    fn ambiguous_urls_are_refused() {
        let table = [
            ("", "is written file:///"),
            ("/a", "is written file:///"),
            ("a", "is written file:///"),
            ("//", "is written file:///"),
            ("//localhost", "is written file:///"),
            ("//example.com/a", "another host"),
            ("//127.0.0.1/a", "another host"),
            ("//localhost:80/a", "another host"),
            ("//user@localhost/a", "another host"),
            ("//local%68ost/a", "another host"),
            ("//../a", "another host"),
            ("///a?b", "no query"),
            ("///a#b", "no query"),
            ("//localhost?/a", "no query"),
            ("///a%2fb", "encoded slash"),
            ("///a%2Fb", "encoded slash"),
            ("///..%2F..%2fb", "encoded slash"),
            ("///a%00.png", "NUL"),
            ("///a%", "two hexadecimal digits"),
            ("///a%2", "two hexadecimal digits"),
            ("///a%u002f", "two hexadecimal digits"),
            ("///a\0", "control characters"),
            ("///a\nb", "control characters"),
        ];
        for (url, expected) in table {
            let text = parse(url).expect_err(url);
            assert!(text.contains(expected), "{url}: {text}");
        }
    }

    proptest! {
        #[test]
        fn no_url_makes_the_parser_panic(url in ".*", tail in "//[a-z]{0,3}/[a-z./%0-9\\\\]*") {
            for url in [url, tail] {
                if let Ok(path) = parse(&url) {
                    prop_assert!(path.is_absolute());
                }
            }
        }

        #[test]
        fn any_path_survives_encoding(path in prop::collection::vec(1u8.., 0..60)) {
            use std::fmt::Write as _;
            let url = path.iter().fold(String::from("///"), |mut url, &byte| {
                if byte == b'/' { url.push('/') } else { write!(url, "%{byte:02X}").unwrap() }
                url
            });
            let read = parse(&url).unwrap();
            prop_assert_eq!(&read.as_os_str().as_bytes()[1..], &path);
        }
    }
}
