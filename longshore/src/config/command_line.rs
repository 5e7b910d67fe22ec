//! Splits a command line into words like a shell, but expands nothing and runs nothing.

/// Splits a command line into words. Text in single quotes is taken literally. In double quotes and outside of quotes, a backslash
/// makes the next character literal.
pub fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    // The word that is being read. `None`: between two words. A variable of its own, because empty quotes are a word too.
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' => loop {
                let word = word.get_or_insert_default();
                match characters.next().ok_or("a single quote is not closed")? {
                    '\'' => break,
                    other => word.push(other),
                }
            },
            '"' => loop {
                let word = word.get_or_insert_default();
                match characters.next().ok_or("a double quote is not closed")? {
                    '"' => break,
                    '\\' => match characters.next().ok_or("a double quote is not closed")? {
                        special @ ('"' | '\\' | '$' | '`') => word.push(special),
                        other => word.extend(['\\', other]),
                    },
                    other => word.push(other),
                }
            },
            '\\' => {
                word.get_or_insert_default().push(characters.next().ok_or("it ends with a backslash")?);
            }
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_as_a_shell_would_split_it() {
        let lines = [
            "qwen --acp",
            "  two   spaces\tand\ttabs  ",
            "'single quotes' \"double quotes\"",
            r#"a'b'"c"d"#,
            r#"'' """#,
            r#"back\ slash \\ \' \""#,
            r#""in \"double\" \\ \n quotes""#,
            r"'in \single quotes'",
            "a\nb",
            "ünïcode 'mit Leerzeichen'",
        ];
        for line in lines {
            let script =
                format!("for word in {}; do printf '%s\\0' \"$word\"; done", line.replace('\n', " "));
            let printed = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap().stdout;
            let printed = String::from_utf8(printed).unwrap();
            let expected: Vec<&str> = printed.split_terminator('\0').collect();
            assert_eq!(split(line).unwrap(), expected, "{line}");
        }
        assert_eq!(split("").unwrap(), [""; 0]);
    }

    #[test]
    fn nothing_is_expanded() {
        let words = split("$HOME `id` $(id) * ~ a;b a|b >c").unwrap();
        assert_eq!(words, ["$HOME", "`id`", "$(id)", "*", "~", "a;b", "a|b", ">c"]);
    }

    #[test]
    fn an_unfinished_line_is_refused() {
        for line in ["'a", "\"a", "\"a\\\"", "a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
