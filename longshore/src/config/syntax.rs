//! Explains in plain words why a text is not TOML, because the parser's own messages assume that the reader knows TOML's grammar.

use toml::de::Error;

/// Rows of a part of a parser message, and the explanation for it. The first row whose part occurs is used.
const WORDS: &[(&str, &str)] = &[
    ("extra `=`", "there is one `=` too many; write `name = value`"),
    (
        "string values must be quoted",
        "this value is not a number, `true` or `false`, so it needs double quotes: `name = \"value\"`",
    ),
    ("key with no value", "there is no `=` after the name; write `name = value`"),
    (
        "unquoted key",
        "a name has only letters, digits, `-` and `_`; write `name = value`, and `# ` before a comment",
    ),
    ("invalid key-value pair", "this is not a setting; write `name = value`"),
    ("expected non-double-quote visible characters", "this character is not allowed in a text"),
    ("string, expected", "the quote at the end of the text is missing"),
    ("escaped value", BACKSLASH),
    ("unicode", BACKSLASH),
    ("unclosed array table", "`]]` is missing at the end of the section's name"),
    ("unclosed table", "`]` is missing at the end of the section's name"),
    ("unclosed array", "`]` is missing at the end of the list"),
    ("unclosed inline table", "`}` is missing at the end of the group that begins with `{`"),
    ("missing comma", "a comma is missing between two values of the list"),
    (
        "unexpected key or value",
        "the line has more than it should; each setting and each `[section]` has its own line",
    ),
    (
        "duplicate key",
        "this setting or section is in the file a second time; remove one of the two settings, or put the settings of \
         both sections under one `[section]`",
    ),
    ("invalid boolean", "write `true` or `false` in lower case"),
];

const BACKSLASH: &str =
    "a text in double quotes must not contain a single backslash; write two, or use single quotes";

/// Explains the error, and says what to write instead.
pub(super) fn plain_words(error: &Error) -> String {
    let is_nothing = error.span().is_some_and(|span| span.is_empty());
    let said = error.message();
    if is_nothing && said.starts_with("string values must be quoted") {
        return "there is no value after the `=`; write `name = value`, or remove the line".to_owned();
    }
    match WORDS.iter().find(|(words, _)| said.contains(words)) {
        Some((_, plain)) => (*plain).to_owned(),
        None => format!("{said}; https://toml.io describes the format"),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::file;

    #[test]
    fn each_mistake_is_named_in_plain_words_at_its_line_and_column() {
        let mistakes = [
            "[serve]\nport = = 1\n",
            "[serve]\nport =\n[log]\n",
            "[serve]\nport 8000\n",
            "[serve]\nport: 8000\n",
            "[serve\nport = 8000\n",
            "[[serve]\nport = 8000\n",
            "[serve]]\nport = 8000\n",
            "[serve]\nport = 8000 host = \"::\"\n",
            "[serve]\nport = 1\nport = 2\n",
            "[serve]\nport = 1\n[serve]\nhost = \"::\"\n",
            "[card]\ntitle = Émile\n",
            "[card]\ntitle = \"Émile\n",
            "[card]\ntitle = 'Émile\n",
            "[card]\ntitle = \"É\\mile\"\n",
            "[card]\ntitle = \"C:\\Users\"\n",
            "[card]\ntitle = \"É\u{1}\"\n",
            "[serve]\nallowed_hosts = [\"a\" \"b\"]\n",
            "[serve]\nallowed_hosts = [\"a\"\n",
            "[serve]\nmetrics = True\n",
            "[serve]\nport = 08\n",
            "// a comment\n",
            "{\"serve\": {\"port\": 1}}",
            "serve = {port = 1\n",
        ];
        let told = mistakes.map(|text| {
            let mut problems = Vec::new();
            file::parse("my.toml", text, &mut problems);
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            format!("{text}{}", problems[0])
        });
        insta::assert_snapshot!(told.join("\n\n"));
    }
}
