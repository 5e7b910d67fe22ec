//! Shows a change of a file as text: one hunk in the unified format, without unchanged lines.

use std::fmt::Write as _;

/// The longest diff, in bytes. A longer one is cut, and a line says so.
const MAX_BYTES: usize = 64 * 1024;

pub(super) fn unified(path: &str, old: &str, new: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same_start = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[same_start..], &after[same_start..]);
    let same_end = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[..before.len() - same_end], &after[..after.len() - same_end]);
    // In the unified format, a side without lines names the line before it.
    let start = |lines: &[&str]| if lines.is_empty() { same_start } else { same_start + 1 };
    let mut text = format!("--- {path}\n+++ {path}\n");
    let _ = writeln!(text, "@@ -{},{} +{},{} @@", start(before), before.len(), start(after), after.len());
    for (sign, lines) in [('-', before), ('+', after)] {
        for line in lines {
            if text.len() + line.len() > MAX_BYTES {
                text.push_str("… (cut)\n");
                return text;
            }
            let _ = writeln!(text, "{sign}{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_are_shown() {
        for (old, new, expected) in [
            ("a\nb\nc\n", "a\nx\nc\n", "@@ -2,1 +2,1 @@\n-b\n+x\n"),
            ("", "one\ntwo\n", "@@ -0,0 +1,2 @@\n+one\n+two\n"),
            ("one\n", "", "@@ -1,1 +0,0 @@\n-one\n"),
            ("a\na\n", "a\na\na\n", "@@ -2,0 +3,1 @@\n+a\n"),
            ("same\n", "same\n", "@@ -1,0 +1,0 @@\n"),
        ] {
            assert_eq!(unified("f", old, new), format!("--- f\n+++ f\n{expected}"));
        }
    }

    #[test]
    fn a_long_diff_is_cut() {
        let text = unified("f", "", &"line\n".repeat(100_000));
        assert!(text.len() <= MAX_BYTES + 100 && text.ends_with("… (cut)\n"), "{}", text.len());
    }
}
