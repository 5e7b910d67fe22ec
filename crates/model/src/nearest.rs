//! Finds the known name that is most similar to an unknown one, for "did you mean" in error messages.

/// The most similar of `names`, if it is similar enough to be what the user meant.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // At most a third of the letters may differ. With more differences, the user probably meant another word.
    let limit = name.len().div_ceil(3);
    names
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// A suggestion to append to a message about an unknown name.
pub fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, names).map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

/// How many letters must be added, removed or changed to turn one name into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_name_is_suggested() {
        let names = ["A2A_PORT", "A2A_HOST", "A2A_TITLE"];
        let cases = [
            ("A2A_PROT", Some("A2A_PORT")),
            ("A2A_TITEL", Some("A2A_TITLE")),
            ("A2A_HOSTS", Some("A2A_HOST")),
            ("SOMETHING_ELSE", None),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, names), expected, "{name}");
        }
    }
}
