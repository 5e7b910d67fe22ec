//! Formats the change that a tool call made to a file, as removed and added lines.

use serde_json::Value;

/// The most lines of a change that are printed.
const MAX_LINES: usize = 40;

/// One line of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    Removed(String),
    Added(String),
    /// A position in the file, or the number of lines that are left out.
    About(String),
}

/// The change that a finished tool call made, if the call has it: as the texts before and after, or as a unified diff in its
/// output.
pub(crate) fn of_call(call: &Value) -> Vec<Line> {
    let input = &call["input"];
    let text = |name: &str| input[name].as_str();
    let texts = text("oldString")
        .or_else(|| text("old_string"))
        .zip(text("newString").or_else(|| text("new_string")));
    let lines = match texts {
        Some((old, new)) => changed(old, new),
        None => call["output"].as_str().map(unified).unwrap_or_default(),
    };
    cut(lines)
}

/// The lines that differ. Equal lines at the start and at the end are left out.
fn changed(old: &str, new: &str) -> Vec<Line> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same_start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same_start..], &new[same_start..]);
    let same_end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - same_end], &new[..new.len() - same_end]);
    let removed = old.iter().map(|line| Line::Removed((*line).to_owned()));
    removed.chain(new.iter().map(|line| Line::Added((*line).to_owned()))).collect()
}

/// The hunks of a unified diff. Empty if the text has none.
fn unified(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut is_in_hunk = false;
    for line in text.lines() {
        if line.starts_with("@@ ") {
            is_in_hunk = true;
            lines.push(Line::About(line.to_owned()));
        } else if !is_in_hunk || line.starts_with("--- ") || line.starts_with("+++ ") {
            is_in_hunk = false;
        } else if let Some(removed) = line.strip_prefix('-') {
            lines.push(Line::Removed(removed.to_owned()));
        } else if let Some(added) = line.strip_prefix('+') {
            lines.push(Line::Added(added.to_owned()));
        } else {
            is_in_hunk = line.starts_with(' ') || line.starts_with('\\') || line.is_empty();
        }
    }
    lines
}

fn cut(mut lines: Vec<Line>) -> Vec<Line> {
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(Line::About(format!("… {more} more lines")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(call: &Value) -> String {
        let line = |line: Line| match line {
            Line::Removed(text) => format!("-{text}\n"),
            Line::Added(text) => format!("+{text}\n"),
            Line::About(text) => format!("{text}\n"),
        };
        of_call(call).into_iter().map(line).collect()
    }

    #[test]
    fn only_changed_lines_are_shown() {
        let edit = json!({"input": {"oldString": "a\nb\nc", "newString": "a\nx\nc"}, "output": "Edited."});
        assert_eq!(shown(&edit), "-b\n+x\n");
        let diff = "Done.\n--- f\n+++ f\n@@ -1,2 +1,2 @@\n same\n-old\n+new\nnothing\n- no change";
        assert_eq!(shown(&json!({"output": diff})), "@@ -1,2 +1,2 @@\n-old\n+new\n");
        assert_eq!(shown(&json!({"output": "- a list\n+ of things"})), "");
        assert_eq!(shown(&json!({})), "");
    }

    #[test]
    fn a_long_change_is_cut() {
        let long = "line\n".repeat(100);
        let text = shown(&json!({"input": {"old_string": "", "new_string": long}}));
        assert_eq!(text.lines().count(), MAX_LINES + 1);
        assert!(text.ends_with("… 60 more lines\n"), "{text}");
    }
}
