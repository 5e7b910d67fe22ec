//! The enums of 1.0, by name and by number.

use longshore_model::{Role, TaskState};
use serde_json::value::RawValue;

use crate::json::{Fault, Read, int32, text};
use crate::spelling::Named;

pub(crate) fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Submitted => "TASK_STATE_SUBMITTED",
        TaskState::Working => "TASK_STATE_WORKING",
        TaskState::InputRequired => "TASK_STATE_INPUT_REQUIRED",
        TaskState::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        TaskState::Completed => "TASK_STATE_COMPLETED",
        TaskState::Failed => "TASK_STATE_FAILED",
        TaskState::Canceled => "TASK_STATE_CANCELED",
        TaskState::Rejected => "TASK_STATE_REJECTED",
    }
}

pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "ROLE_USER",
        Role::Agent => "ROLE_AGENT",
    }
}

pub(crate) fn state(raw: &RawValue) -> Read<Named<TaskState>> {
    if raw.get().starts_with('"') {
        return state_from_name(&text(raw)?);
    }
    int32(raw).ok().and_then(state_from_number).ok_or_else(unknown_state)
}

/// Reads a state from a query string, in which a number is also text.
pub(crate) fn state_from_text(text: &str) -> Read<Named<TaskState>> {
    match text.parse() {
        Ok(number) => state_from_number(number).ok_or_else(unknown_state),
        Err(_) => state_from_name(text),
    }
}

pub(crate) fn role(raw: &RawValue) -> Read<Named<Role>> {
    let unknown = || Fault::new("must be ROLE_USER or ROLE_AGENT");
    if raw.get().starts_with('"') {
        return match text(raw)?.as_str() {
            "ROLE_UNSPECIFIED" => Ok(Named::Unspecified),
            "ROLE_USER" => Ok(Named::Value(Role::User)),
            "ROLE_AGENT" => Ok(Named::Value(Role::Agent)),
            _ => Err(unknown()),
        };
    }
    match int32(raw) {
        Ok(0) => Ok(Named::Unspecified),
        Ok(1) => Ok(Named::Value(Role::User)),
        Ok(2) => Ok(Named::Value(Role::Agent)),
        _ => Err(unknown()),
    }
}

fn state_from_name(name: &str) -> Read<Named<TaskState>> {
    if name == "TASK_STATE_UNSPECIFIED" {
        return Ok(Named::Unspecified);
    }
    let state = TaskState::ALL.into_iter().find(|state| state_name(*state) == name);
    state.map(Named::Value).ok_or_else(unknown_state)
}

fn state_from_number(number: i32) -> Option<Named<TaskState>> {
    Some(Named::Value(match number {
        0 => return Some(Named::Unspecified),
        1 => TaskState::Submitted,
        2 => TaskState::Working,
        3 => TaskState::Completed,
        4 => TaskState::Failed,
        5 => TaskState::Canceled,
        6 => TaskState::InputRequired,
        7 => TaskState::Rejected,
        8 => TaskState::AuthRequired,
        _ => return None,
    }))
}

fn unknown_state() -> Fault {
    Fault::new("must be a task state, such as TASK_STATE_WORKING")
}

#[cfg(test)]
mod tests {
    use a2a_pb::protojson;

    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_official_types() {
        for number in -1..20 {
            let theirs = protojson::TaskState::try_from(number).ok();
            let ours = state_from_number(number);
            assert_eq!(ours.is_some(), theirs.is_some(), "{number}");
            if let (Some(Named::Value(state)), Some(theirs)) = (ours, theirs) {
                assert_eq!(state_name(state), theirs.as_str_name());
            }
            let raw = RawValue::from_string(number.to_string()).unwrap();
            let role = role(&raw).ok().map(|role| role.value().map(role_name));
            let theirs = protojson::Role::try_from(number).ok().map(|role| role.as_str_name());
            assert_eq!(role.is_some(), theirs.is_some(), "{number}");
            if let Some(Some(name)) = role {
                assert_eq!(Some(name), theirs);
            }
        }
    }
}
