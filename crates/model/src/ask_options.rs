//! The options of a permission request, and the choice of an option by a word (`once`, `always`, `reject`) or by name.
//!
//! A word chooses an option by its kind, and never by its id or position. For example, one agent rejects a single call by the id
//! `cancel`, and several options may allow always.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::interrupt::PermissionReply;
use crate::named_enum::named_enum;
use crate::{Result, redact};

/// How many options of a request are kept. Real agents offer up to five. Further options cannot be chosen.
pub const MAX_OPTIONS: usize = 32;

/// The longest id of an option, in characters. An option with a longer id is left out, because the agent would not recognize a
/// shortened id.
pub const MAX_OPTION_ID_CHARS: usize = 256;

/// The longest name of an option, in characters. The rest is cut.
pub const MAX_OPTION_NAME_CHARS: usize = 256;

/// The longest list of options in an error or a message, in characters. The rest is cut.
const MAX_LIST_CHARS: usize = 2048;

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum OptionKind {
        AllowOnce = "allow_once",
        AllowAlways = "allow_always",
        RejectOnce = "reject_once",
        RejectAlways = "reject_always",
        /// A kind that this gateway does not know. Such an option is chosen only by a caller who names it.
        Other = "other",
    }
    fn as_str
}

impl OptionKind {
    pub fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word).unwrap_or(Self::Other)
    }

    pub fn is_rejection(self) -> bool {
        matches!(self, Self::RejectOnce | Self::RejectAlways)
    }

    /// Whether the agent keeps the answer for later requests.
    pub fn is_always(self) -> bool {
        matches!(self, Self::AllowAlways | Self::RejectAlways)
    }

    /// Whether the agent may keep the answer for later requests. With an unknown kind, it may.
    pub fn may_be_kept(self) -> bool {
        self.is_always() || self == Self::Other
    }
}

/// One answer that the agent offers to a permission request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AskOption {
    pub id: String,
    pub name: String,
    pub kind: OptionKind,
}

/// The options of a request in the agent's order. An empty list stands for [`AskOptions::words`], because asks that were stored by
/// older versions of the gateway have no options.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AskOptions(Vec<AskOption>);

static WORDS: LazyLock<AskOptions> = LazyLock::new(|| {
    let option = |reply: PermissionReply, name: &str, kind| AskOption {
        id: reply.as_str().to_owned(),
        name: name.to_owned(),
        kind,
    };
    AskOptions(vec![
        option(PermissionReply::Once, "Allow once", OptionKind::AllowOnce),
        option(PermissionReply::Always, "Always allow", OptionKind::AllowAlways),
        option(PermissionReply::Reject, "Reject", OptionKind::RejectOnce),
    ])
});

impl AskOptions {
    /// Leaves out options that could not be chosen: those beyond [`MAX_OPTIONS`], and those whose id is empty, too long or already
    /// used. The id of an option without a name becomes its name.
    pub fn new(offered: impl IntoIterator<Item = AskOption>) -> Self {
        let mut options: Vec<AskOption> = Vec::new();
        for AskOption { id, name, kind } in offered {
            let is_taken = options.iter().any(|option| option.id == id);
            if id.is_empty() || id.chars().count() > MAX_OPTION_ID_CHARS || is_taken {
                continue;
            }
            if options.len() == MAX_OPTIONS {
                break;
            }
            let name = if name.trim().is_empty() { &id } else { &name };
            let name = redact::cut_at(name, MAX_OPTION_NAME_CHARS);
            options.push(AskOption { id, name, kind });
        }
        Self(options)
    }

    /// The options of an agent that accepts only the three words.
    pub fn words() -> Self {
        WORDS.clone()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &AskOption> {
        self.offered().iter()
    }

    /// The options that clients are shown. Empty if there are only the three words, which every client knows.
    #[must_use]
    pub fn shown(&self) -> Self {
        if *self == *WORDS { Self::default() } else { self.clone() }
    }

    pub fn are_words(&self) -> bool {
        self.offered() == WORDS.0
    }

    fn offered(&self) -> &[AskOption] {
        if self.0.is_empty() { &WORDS.0 } else { &self.0 }
    }

    /// The option for one of the three words. `None`: the word is `reject`, and no option rejects.
    ///
    /// Fails if the agent offers no option that allows once, not exactly one that allows always, or only options that reject for
    /// ever. In these cases the option would decide more than the word says, so the caller must name an option.
    pub fn choose(&self, reply: PermissionReply) -> Result<Option<&AskOption>> {
        let of_kind = |kind| self.offered().iter().filter(move |option| option.kind == kind);
        match reply {
            PermissionReply::Once => match of_kind(OptionKind::AllowOnce).next() {
                Some(option) => Ok(Some(option)),
                None => Err(self.not_offered(reply.as_str())),
            },
            PermissionReply::Always => {
                let mut found = of_kind(OptionKind::AllowAlways);
                match (found.next(), found.next()) {
                    (Some(option), None) => Ok(Some(option)),
                    _ => Err(self.not_offered(reply.as_str())),
                }
            }
            PermissionReply::Reject => match of_kind(OptionKind::RejectOnce).next() {
                None if of_kind(OptionKind::RejectAlways).next().is_some() => Err(self.rejects_for_ever()),
                option => Ok(option),
            },
        }
    }

    /// The option with this id, or the only option with this name. Names ignore case.
    pub fn named(&self, text: &str) -> Result<&AskOption> {
        let text = text.trim();
        let offered = self.offered();
        if let Some(option) = offered.iter().find(|option| option.id == text) {
            return Ok(option);
        }
        let mut by_name = offered.iter().filter(|option| option.name.eq_ignore_ascii_case(text));
        match (by_name.next(), by_name.next()) {
            (Some(option), None) => Ok(option),
            _ => Err(self.not_offered(text)),
        }
    }

    fn rejects_for_ever(&self) -> Error {
        let list = list(self.iter());
        let text = format!(
            "The agent offers no option that rejects this request only, so `reject` chooses none. Name one of: {list}. Or cancel \
             the task."
        );
        Error::new(ErrorKind::InvalidParams, text)
    }

    fn not_offered(&self, text: &str) -> Error {
        let (text, list) = (redact::cut_at(text, MAX_OPTION_NAME_CHARS), list(self.iter()));
        let text =
            format!("The agent offers no option, or more than one, for `{text}`. Name one of: {list}.");
        Error::new(ErrorKind::InvalidParams, text)
    }
}

/// A list of options with their ids and names, as text for people.
pub fn list<'a>(options: impl Iterator<Item = &'a AskOption>) -> String {
    let each = |option: &AskOption| match option {
        AskOption { id, name, .. } if id == name => id.clone(),
        AskOption { id, name, .. } => format!("{id} ({name})"),
    };
    redact::cut_at(&options.map(each).collect::<Vec<_>>().join(", "), MAX_LIST_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(offered: &[(&str, &str, &str)]) -> AskOptions {
        AskOptions::new(offered.iter().map(|(id, name, kind)| AskOption {
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            kind: OptionKind::parse(kind),
        }))
    }

    /// The options of each recorded agent for a shell command.
    fn agents() -> [AskOptions; 4] {
        [
            options(&[
                ("proceed_always_project", "Always Allow in project: touch *", "allow_always"),
                ("proceed_always_user", "Always Allow for user: touch *", "allow_always"),
                ("proceed_once", "Allow", "allow_once"),
                ("cancel", "Reject", "reject_once"),
            ]),
            options(&[
                ("allow_always", "Always Allow", "allow_always"),
                ("allow", "Allow", "allow_once"),
                ("reject", "Reject", "reject_once"),
            ]),
            options(&[
                ("allow_once", "Allow once", "allow_once"),
                ("allow_always", "Allow for remainder of this session", "allow_always"),
                ("allow_always_permanent", "Always allow", "allow_always"),
                ("reject_once", "Deny", "reject_once"),
            ]),
            options(&[
                ("once", "Allow once", "allow_once"),
                ("always", "Always allow", "allow_always"),
                ("reject", "Reject", "reject_once"),
            ]),
        ]
    }

    fn chosen(options: &AskOptions, reply: PermissionReply) -> String {
        match options.choose(reply) {
            Ok(Some(option)) => option.id.clone(),
            Ok(None) => "(none)".to_owned(),
            Err(error) => format!("(refused: {error})"),
        }
    }

    #[test]
    fn the_words_choose_by_kind_for_every_recorded_agent() {
        let expected = [
            ("proceed_once", None, "cancel"),
            ("allow", Some("allow_always"), "reject"),
            ("allow_once", None, "reject_once"),
            ("once", Some("always"), "reject"),
        ];
        for (options, (once, always, reject)) in agents().iter().zip(expected) {
            assert_eq!(chosen(options, PermissionReply::Once), once);
            assert_eq!(chosen(options, PermissionReply::Reject), reject);
            let found = chosen(options, PermissionReply::Always);
            match always {
                Some(always) => assert_eq!(found, always),
                // Two options allow always, so the caller must name one of them.
                None => assert!(found.contains("Name one of: "), "{found}"),
            }
        }
    }

    #[test]
    fn a_list_that_is_empty_or_has_just_the_words_is_not_shown() {
        let [qwen, _, _, plain] = agents();
        assert_eq!(plain, AskOptions::words());
        for words in [&plain, &AskOptions::default()] {
            assert!(words.are_words() && words.shown().is_empty());
            assert_eq!(chosen(words, PermissionReply::Once), "once");
            assert_eq!(words.iter().count(), 3);
        }
        assert!(!qwen.are_words());
        assert_eq!(qwen.shown(), qwen);
    }

    #[test]
    fn a_word_never_becomes_an_option_that_decides_more() {
        let only_always = options(&[("y", "Yes", "allow_always"), ("x", "Odd", "maybe")]);
        let refused = chosen(&only_always, PermissionReply::Once);
        assert!(refused.contains("Name one of: y (Yes), x (Odd)."), "{refused}");
        assert_eq!(chosen(&only_always, PermissionReply::Always), "y");
        assert_eq!(chosen(&only_always, PermissionReply::Reject), "(none)");
        let for_ever = options(&[("y", "Yes", "allow_once"), ("n", "Never", "reject_always")]);
        let refused = chosen(&for_ever, PermissionReply::Reject);
        assert!(refused.contains("Name one of: y (Yes), n (Never). Or cancel the task."), "{refused}");
    }

    #[test]
    fn an_option_is_named_by_its_id_or_its_unique_name() {
        let options = options(&[
            ("a", "Allow", "allow_once"),
            ("b", "allow", "allow_always"),
            ("Reject", "No", "reject_once"),
            ("c", "Reject", "other"),
        ]);
        for (text, expected) in [(" a ", "a"), ("no", "Reject"), ("Reject", "Reject"), ("reject", "c")] {
            assert_eq!(options.named(text).unwrap().id, expected, "{text:?}");
        }
        for text in ["Allow", "d", ""] {
            let error = options.named(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
            assert!(error.message().contains("a (Allow), b (allow), Reject (No), c (Reject)."), "{error}");
        }
    }

    #[test]
    fn options_are_bounded() {
        let (long, longer) = ("i".repeat(MAX_OPTION_ID_CHARS), "i".repeat(MAX_OPTION_ID_CHARS + 1));
        let name = "é".repeat(MAX_OPTION_NAME_CHARS + 1);
        let odd = options(&[
            ("", "No id", "allow_once"),
            (&longer, "", "allow_once"),
            (&long, &name, "allow_once"),
            (&long, "Twice", "allow_always"),
            ("plain", " ", "reject_once"),
        ]);
        let kept: Vec<_> =
            odd.iter().map(|option| (option.id.as_str(), option.name.chars().count())).collect();
        assert_eq!(kept, [(long.as_str(), MAX_OPTION_NAME_CHARS), ("plain", 5)]);
        let many: Vec<_> = (0..MAX_OPTIONS + 8).map(|number| format!("{number} {long}")).collect();
        let many: Vec<_> = many.iter().map(|id| (&id[..100], name.as_str(), "other")).collect();
        assert_eq!(options(&many).iter().count(), MAX_OPTIONS);
        assert!(options(&many).named("x").unwrap_err().message().chars().count() < MAX_LIST_CHARS + 200);
    }
}
