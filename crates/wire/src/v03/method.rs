//! The operations of 0.3, by their JSON-RPC names.
//!
//! `tasks/list` is ours. A2A 0.3 lists tasks by a REST path only, and its SDKs by none; but a caller of JSON-RPC that wants a
//! list has no other way to it, the name is the only one that it could have, and nobody who does not call it is concerned.

pub use crate::v1::method::Method;

/// `None` for a name that 0.3 does not have.
pub fn parse(method: &str) -> Option<Method> {
    Method::ALL.into_iter().find(|known| name(*known) == method)
}

pub fn name(method: Method) -> &'static str {
    match method {
        Method::SendMessage => "message/send",
        Method::SendStreamingMessage => "message/stream",
        Method::GetTask => "tasks/get",
        Method::ListTasks => "tasks/list",
        Method::CancelTask => "tasks/cancel",
        Method::SubscribeToTask => "tasks/resubscribe",
        Method::CreateTaskPushNotificationConfig => "tasks/pushNotificationConfig/set",
        Method::GetTaskPushNotificationConfig => "tasks/pushNotificationConfig/get",
        Method::ListTaskPushNotificationConfigs => "tasks/pushNotificationConfig/list",
        Method::DeleteTaskPushNotificationConfig => "tasks/pushNotificationConfig/delete",
        Method::GetExtendedAgentCard => "agent/getAuthenticatedExtendedCard",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_no_line_knows_those_of_the_other() {
        for method in Method::ALL {
            assert_eq!(parse(name(method)), Some(method));
            assert_eq!(parse(method.as_str()), None);
            assert_eq!(Method::parse(name(method)), None);
        }
        for name in ["message/sends", "Message/Send", "tasks/pushNotification/set", "tasks", ""] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
