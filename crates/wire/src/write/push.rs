//! Writes push configurations without credentials and token, because a caller who may read a configuration need not know them.

use longshore_model::PushConfig;

use crate::json::ObjectWriter;

/// Writes `{"configs": […], "nextPageToken": …}`. The token is left out on the last page.
pub(crate) fn write_page(
    out: &mut Vec<u8>,
    configs: &[PushConfig],
    next_page_token: &str,
    write: impl FnMut(&mut Vec<u8>, &PushConfig),
) {
    let mut page = ObjectWriter::begin(out);
    page.array("configs", configs, write);
    page.some_text("nextPageToken", Some(next_page_token));
    page.end();
}

/// Writes a configuration in the flat form of 1.0.
pub(crate) fn write_flat(out: &mut Vec<u8>, config: &PushConfig) {
    let mut object = ObjectWriter::begin(out);
    object.text("taskId", config.task.as_str());
    object.text("id", config.id.as_str());
    object.text("url", &config.url);
    if let Some(authentication) = &config.authentication {
        object.object("authentication", |object| object.text("scheme", &authentication.scheme));
    }
    object.end();
}

/// Writes the inner object of a configuration in 0.3.
pub(crate) fn write_inner(object: &mut ObjectWriter<'_>, config: &PushConfig) {
    object.object("pushNotificationConfig", |object| {
        object.text("id", config.id.as_str());
        object.text("url", &config.url);
        if let Some(authentication) = &config.authentication {
            object.object("authentication", |object| object.texts("schemes", [&authentication.scheme]));
        }
    });
}

#[cfg(test)]
mod tests {
    use longshore_model::{
        PushAuthentication, PushConfigId, PushEvents, PushFormat, PushView, Secret, TaskId, Timestamp,
    };

    use super::*;
    use crate::v03::Dialect::{Rest, Rpc};
    use crate::{v1, v03};

    fn config(id: &str, scheme: Option<&str>) -> PushConfig {
        PushConfig {
            id: PushConfigId::parse(id).unwrap(),
            task: TaskId::parse("t1").unwrap(),
            url: "https://x.test/h".to_owned(),
            token: Some(Secret::new("planted")),
            authentication: scheme.map(|scheme| PushAuthentication {
                scheme: scheme.to_owned(),
                credentials: Some(Secret::new("planted")),
            }),
            format: PushFormat::V1,
            events: PushEvents::default(),
            view: PushView::default(),
            created: Timestamp(1),
        }
    }

    #[test]
    fn a_configuration_is_written_in_every_dialect_without_its_secrets() {
        let with = config("c1", Some("Bearer"));
        let flat =
            r#"{"taskId":"t1","id":"c1","url":"https://x.test/h","authentication":{"scheme":"Bearer"}}"#;
        let inner = r#""pushNotificationConfig":{"id":"c1","url":"https://x.test/h","authentication":{"schemes":["Bearer"]}}"#;
        let rest = format!(r#"{{"name":"tasks/t1/pushNotificationConfigs/c1",{inner}}}"#);
        assert_eq!(v1::encode::push_config(&with), flat);
        assert_eq!(v03::encode::push_config(&with, Rpc), format!(r#"{{"taskId":"t1",{inner}}}"#));
        assert_eq!(v03::encode::push_config(&with, Rest), rest);
        let bare = [config("c2", None)];
        let flat = r#"{"taskId":"t1","id":"c2","url":"https://x.test/h"}"#;
        let page = format!(r#"{{"configs":[{flat}],"nextPageToken":"c2"}}"#);
        assert_eq!(v1::encode::push_page(&bare, "c2"), page);
        assert_eq!(v1::encode::push_page(&[], ""), r#"{"configs":[]}"#);
        let old = r#"{"taskId":"t1","pushNotificationConfig":{"id":"c2","url":"https://x.test/h"}}"#;
        assert_eq!(v03::encode::push_page(&bare, "", Rpc), format!("[{old}]"));
        let page = format!(r#"{{"configs":[{rest}]}}"#);
        assert_eq!(v03::encode::push_page(&[with], "", Rest), page);
        let deleted = [v1::encode::deleted(), v03::encode::deleted(Rpc), v03::encode::deleted(Rest)];
        assert_eq!(deleted, ["{}", "null", "{}"]);
    }
}
