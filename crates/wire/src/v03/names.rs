//! Reads and writes the enums of 0.3. They are written in the spelling of the dialect, and read in every spelling, because old
//! clients mix the spellings.

use longshore_model::{Role, TaskState};
use serde_json::value::RawValue;

use crate::json::{Fault, Read, text};
use crate::spelling::Named;
use crate::v1;

pub(super) fn role_word(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Agent => "agent",
    }
}

pub(super) fn state_word(state: TaskState) -> &'static str {
    match state {
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::InputRequired => "input-required",
        TaskState::AuthRequired => "auth-required",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::Rejected => "rejected",
    }
}

/// The state names of `a2a.v1`. They are those of 1.0, except that CANCELLED has two Ls.
pub(super) fn state_enum(state: TaskState) -> &'static str {
    match state {
        TaskState::Canceled => "TASK_STATE_CANCELLED",
        other => v1::state_name(other),
    }
}

pub(super) fn role(raw: &RawValue) -> Read<Named<Role>> {
    let word = raw.get().starts_with('"').then(|| text(raw)).transpose()?;
    let roles = [Role::User, Role::Agent];
    match word.and_then(|word| roles.into_iter().find(|role| role_word(*role) == word)) {
        Some(role) => Ok(Named::Value(role)),
        None => v1::role(raw).map_err(|_| Fault::new("must be user or agent")),
    }
}

pub(super) fn state(raw: &RawValue) -> Read<Named<TaskState>> {
    if raw.get().starts_with('"') {
        return state_from_text(&text(raw)?);
    }
    v1::state_from_text(raw.get()).map_err(|_| unknown_state())
}

pub(super) fn state_from_text(text: &str) -> Read<Named<TaskState>> {
    if text == "unknown" {
        return Ok(Named::Unspecified);
    }
    let is_named = |state: &TaskState| text == state_word(*state) || text == state_enum(*state);
    match TaskState::ALL.into_iter().find(is_named) {
        Some(state) => Ok(Named::Value(state)),
        None => v1::state_from_text(text).map_err(|_| unknown_state()),
    }
}

fn unknown_state() -> Fault {
    Fault::new("must be a task state, such as working or TASK_STATE_WORKING")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_in_every_spelling() {
        for name in TaskState::ALL {
            for spelled in [state_word(name), state_enum(name), v1::state_name(name)] {
                let raw = RawValue::from_string(format!("\"{spelled}\"")).unwrap();
                assert_eq!(state(&raw).unwrap(), Named::Value(name), "{spelled}");
                assert_eq!(state_from_text(spelled).unwrap(), Named::Value(name), "{spelled}");
            }
        }
        for (json, expected) in [
            ("5", Some(Named::Value(TaskState::Canceled))),
            ("\"5\"", Some(Named::Value(TaskState::Canceled))),
            ("\"unknown\"", Some(Named::Unspecified)),
            ("\"TASK_STATE_UNSPECIFIED\"", Some(Named::Unspecified)),
            ("\"cancelled\"", None),
            ("\"input_required\"", None),
            ("\"Working\"", None),
            ("9", None),
            ("true", None),
        ] {
            let raw = RawValue::from_string(json.to_owned()).unwrap();
            assert_eq!(state(&raw).ok(), expected, "{json}");
        }
    }

    #[test]
    fn roles_are_read_as_words_names_and_numbers() {
        for (json, expected) in [
            ("\"user\"", Some(Named::Value(Role::User))),
            ("\"agent\"", Some(Named::Value(Role::Agent))),
            ("\"ROLE_USER\"", Some(Named::Value(Role::User))),
            ("2", Some(Named::Value(Role::Agent))),
            ("0", Some(Named::Unspecified)),
            ("\"assistant\"", None),
            ("\"User\"", None),
            ("[]", None),
        ] {
            let raw = RawValue::from_string(json.to_owned()).unwrap();
            assert_eq!(role(&raw).ok(), expected, "{json}");
        }
    }
}
