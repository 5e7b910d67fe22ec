//! Tests of every spelling of the requests about push notifications.

use longshore_model::{Error, ErrorKind, PushFormat};

use super::*;

const V1: PushFormat = PushFormat::V1;
const V03: PushFormat = PushFormat::V03;

fn task() -> TaskId {
    TaskId::parse("t1").unwrap()
}

/// The content of a request as text, with its secrets.
fn shown(created: Result<CreatePushConfig>) -> String {
    let CreatePushConfig { task, request } = created.unwrap();
    let PushRequest { place, id, url, token, authentication, format, .. } = request;
    let secret = |secret: &Option<Secret>| secret.as_ref().map_or(String::new(), |it| it.expose().to_owned());
    let authentication =
        authentication.map(|it| format!("{} {}", it.scheme, secret(&it.credentials))).unwrap_or_default();
    let id = id.map(|id| id.to_string()).unwrap_or_default();
    format!("{task}/{id} {url} [{}] [{authentication}] {} at {place:?}", secret(&token), format.as_str())
}

fn fields(error: &Error) -> Vec<String> {
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
    error.violations().iter().map(|violation| violation.field.clone()).collect()
}

#[test]
fn every_form_of_a_new_configuration() {
    const FLAT: &str = r#"{"taskId":"t1","id":"c1","url":"https://x.test/h","token":"tok","authentication":{"scheme":"Bearer","credentials":"cred"},"tenant":""}"#;
    const SNAKE: &str = r#"{"task_id":"t1","id":"c1","url":"https://x.test/h","token":"tok","authentication":{"scheme":"Bearer","credentials":"cred"},"future":[1]}"#;
    const OLD: &str = r#"{"taskId":"t1","pushNotificationConfig":{"id":"c1","url":"https://x.test/h","token":"tok","authentication":{"schemes":["Bearer","Basic"],"credentials":"cred"}}}"#;
    // The request that the Python client of 0.3 sends over REST.
    const PYTHON: &str = r#"{"parent":"tasks/t1","configId":"c1","config":{"name":"tasks/t1/pushNotificationConfigs/c1","pushNotificationConfig":{"id":"c1","url":"https://x.test/h","token":"tok","authentication":{"schemes":["Bearer"],"credentials":"cred"}}}}"#;
    // The request that the JavaScript client of 0.3 sends over REST.
    const JAVASCRIPT: &str = r#"{"name":"tasks/t1/pushNotificationConfigs/c1","pushNotificationConfig":{"id":"c1","url":"https://x.test/h","token":"tok","authentication":{"schemes":["Bearer"],"credentials":"cred"}}}"#;
    let whole = "t1/c1 https://x.test/h [tok] [Bearer cred]";
    for json in [FLAT, SNAKE] {
        assert_eq!(shown(create(json)), format!("{whole} 1.0 at \"\""));
        assert_eq!(shown(create_query("t1", &[], json)), format!("{whole} 1.0 at \"\""));
        assert_eq!(shown(create_v03(json)), format!("{whole} 0.3 at \"\""));
    }
    let inner = "pushNotificationConfig";
    for (created, place) in [
        (create_v03(OLD), inner),
        (create_query_v03("t1", &[], OLD), inner),
        (create_query_v03("t1", &[], JAVASCRIPT), inner),
        (create_query_v03("t1", &[], PYTHON), "config.pushNotificationConfig"),
        (create_query_v03("t1", &[], &PYTHON.replace(r#""id":"c1","#, "")), "config.pushNotificationConfig"),
        (
            create_query_v03(
                "t1",
                &[("configId".to_owned(), "c1".to_owned())],
                &JAVASCRIPT.replace(r#""id":"c1","#, ""),
            ),
            inner,
        ),
    ] {
        assert_eq!(shown(created), format!("{whole} 0.3 at {place:?}"));
    }
    let bare =
        r#"{"taskId":"t1","id":"","url":"https://x.test/","token":"","authentication":{"credentials":""}}"#;
    assert_eq!(shown(create(bare)), "t1/ https://x.test/ [] [] 1.0 at \"\"");
    let unsigned = r#"{"url":"u","authentication":{"scheme":"StandardWebhooks"}}"#;
    assert_eq!(shown(create_query("t1", &[], unsigned)), "t1/ u [] [StandardWebhooks ] 1.0 at \"\"");
}

#[test]
fn a_bad_configuration_is_named_by_its_field() {
    for (json, field) in [
        (r#"{"url":"u"}"#, "taskId"),
        (r#"{"taskId":"a/b","url":"u"}"#, "taskId"),
        (r#"{"taskId":"t1"}"#, "url"),
        (r#"{"taskId":"t1","url":1}"#, "url"),
        (r#"{"taskId":"t1","url":"u","id":"a b"}"#, "id"),
        (r#"{"taskId":"t1","url":"u","token":"a\nb"}"#, "token"),
        (r#"{"taskId":"t1","url":"u","token":" a"}"#, "token"),
        (r#"{"taskId":"t1","url":"u","token":"\u00fc"}"#, "token"),
        (r#"{"taskId":"t1","url":"u","authentication":"Bearer x"}"#, "authentication"),
        (r#"{"taskId":"t1","url":"u","authentication":{"credentials":"x"}}"#, "authentication.scheme"),
        (r#"{"taskId":"t1","url":"u","authentication":{"scheme":"a b"}}"#, "authentication.scheme"),
        (
            r#"{"taskId":"t1","url":"u","authentication":{"scheme":"Bearer","credentials":"a\r\nb"}}"#,
            "authentication.credentials",
        ),
        (
            r#"{"taskId":"t1","url":"u","authentication":{"scheme":"Basic","credentials":"ada:\u00fc"}}"#,
            "authentication.credentials",
        ),
        (r#"{"taskId":"t1","url":"u","tenant":"acme"}"#, "tenant"),
    ] {
        assert_eq!(fields(&create(json).unwrap_err()), [field], "{json}");
    }
    for (json, field) in [
        (r#"{"taskId":"t1"}"#, "pushNotificationConfig"),
        (r#"{"taskId":"t1","pushNotificationConfig":{}}"#, "pushNotificationConfig.url"),
        (
            r#"{"taskId":"t1","push_notification_config":{"url":"u","token":"\u0000"}}"#,
            "push_notification_config.token",
        ),
    ] {
        assert_eq!(fields(&create_v03(json).unwrap_err()), [field], "{json}");
    }
    let inner = r#""pushNotificationConfig":{"id":"c1","url":"u"}"#;
    for (json, field) in [
        (format!(r#"{{"parent":"tasks/t2",{inner}}}"#), "parent"),
        (format!(r#"{{"taskId":"t2",{inner}}}"#), "taskId"),
        (format!(r#"{{"configId":"c2",{inner}}}"#), "configId"),
        (r#"{"config":{"pushNotificationConfig":{}}}"#.to_owned(), "config.pushNotificationConfig.url"),
    ] {
        assert_eq!(fields(&create_query_v03("t1", &[], &json).unwrap_err()), [field], "{json}");
    }
    let other = r#"{"taskId":"t2","url":"u"}"#;
    assert_eq!(fields(&create_query("t1", &[], other).unwrap_err()), ["taskId"]);
    // No error may contain a secret.
    let planted =
        r#"{"taskId":"t1","url":"u","token":"planted\n","authentication":{"credentials":"planted"}}"#;
    assert!(!format!("{:?}", create(planted).unwrap_err()).contains("planted"));
}

#[test]
fn a_configuration_in_a_send_has_the_path_of_its_version() {
    let raw = RawValue::from_string(r#"{"taskId":"","url":"u"}"#.to_owned()).unwrap();
    for format in [V1, V03] {
        let read = in_send(&raw, format, "configuration.x").unwrap();
        assert_eq!((read.field("url").as_str(), read.format), ("configuration.x.url", format));
    }
}

#[test]
fn the_other_requests_name_a_task_and_a_configuration() {
    let id = || PushConfigId::parse("c1").unwrap();
    let got = GetPushConfig { task: task(), id: Some(id()) };
    assert_eq!(get(r#"{"taskId":"t1","id":"c1"}"#).unwrap(), got);
    assert_eq!(get_v03(r#"{"id":"t1","pushNotificationConfigId":"c1"}"#).unwrap(), got);
    assert_eq!(get_query("t1", "c1", &[]).unwrap(), got);
    assert_eq!(get_v03(r#"{"id":"t1"}"#).unwrap(), GetPushConfig { task: task(), id: None });
    let deleted = DeletePushConfig { task: task(), id: id() };
    assert_eq!(delete(r#"{"task_id":"t1","id":"c1"}"#).unwrap(), deleted);
    assert_eq!(delete_v03(r#"{"id":"t1","push_notification_config_id":"c1"}"#).unwrap(), deleted);
    assert_eq!(delete_query("t1", "c1", &[]).unwrap(), deleted);

    let listed = |page_size, token: Option<&str>| ListPushConfigs {
        task: task(),
        page_size,
        page_token: token.map(str::to_owned),
    };
    assert_eq!(list_v03(r#"{"id":"t1"}"#).unwrap(), listed(ALL, None));
    assert_eq!(list_configs(r#"{"taskId":"t1","pageSize":0,"pageToken":""}"#).unwrap(), listed(50, None));
    let asked = listed(7, Some("c1"));
    assert_eq!(list_configs(r#"{"taskId":"t1","pageSize":"7","page_token":"c1"}"#).unwrap(), asked);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(list_query("t1", &[pair("pageSize", "7"), pair("pageToken", "c1")]).unwrap(), asked);
    assert_eq!(list_query("t1", &[pair("page_size", "0"), pair("pageToken", "")]).unwrap(), listed(50, None));

    for (error, field) in [
        (get(r#"{"taskId":"t1"}"#).unwrap_err(), "id"),
        (get(r#"{"id":"c1"}"#).unwrap_err(), "taskId"),
        (get_query("t1", "a b", &[]).unwrap_err(), "push_id"),
        (delete_v03(r#"{"id":"t1"}"#).unwrap_err(), "pushNotificationConfigId"),
        (list_configs(r#"{"taskId":"t1","pageSize":101}"#).unwrap_err(), "pageSize"),
        (list_query("t1", &[pair("pageSize", "-1")]).unwrap_err(), "pageSize"),
        (list_query("", &[]).unwrap_err(), "id"),
    ] {
        assert_eq!(fields(&error), [field]);
    }
}
