//! Webhooks of tasks: URLs that the agent calls when a task changes. A2A calls them push notification configurations.

use longshore_wire::v1::method::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::Result;
use crate::card::Binding;
use crate::client::{Call, Client};
use crate::error::ErrorKind;
use crate::read::malformed;
use crate::request::{Dialect, new_message_id};

/// The most pages of a list that are read. More is not expected, because agents allow few webhooks for each task.
const MAX_PAGES: usize = 20;

/// A webhook of a task.
#[derive(Clone, Debug)]
pub struct PushConfig {
    pub task_id: String,
    /// The id. Empty in a new webhook: the agent chooses an id, or the client does in 0.3 over REST and gRPC.
    pub id: String,
    pub url: String,
    /// A secret that the agent sends with each call, so that the webhook can check that the call is genuine.
    pub token: Option<SecretString>,
    pub authentication: Option<PushAuthentication>,
}

/// The content of the `Authorization` header that the agent sends to the webhook.
#[derive(Clone, Debug)]
pub struct PushAuthentication {
    /// The scheme, such as `Bearer`.
    pub scheme: String,
    pub credentials: Option<SecretString>,
}

impl PushConfig {
    pub fn new(task: impl Into<String>, url: impl Into<String>) -> Self {
        Self { task_id: task.into(), id: String::new(), url: url.into(), token: None, authentication: None }
    }

    /// The parameters of the request that creates the webhook.
    fn write(&self, dialect: Dialect) -> Value {
        let mut config = json!({"url": self.url});
        if !self.id.is_empty() {
            config["id"] = self.id.as_str().into();
        }
        if let Some(token) = &self.token {
            config["token"] = token.expose_secret().into();
        }
        if let Some(PushAuthentication { scheme, credentials }) = &self.authentication {
            let mut authentication =
                if dialect == Dialect::V1 { json!({"scheme": scheme}) } else { json!({"schemes": [scheme]}) };
            if let Some(credentials) = credentials {
                authentication["credentials"] = credentials.expose_secret().into();
            }
            config["authentication"] = authentication;
        }
        match dialect {
            Dialect::V1 => {
                config["taskId"] = self.task_id.as_str().into();
                config
            }
            Dialect::V03Rpc => json!({"taskId": self.task_id, "pushNotificationConfig": config}),
            Dialect::V03Rest => {
                let name = format!("tasks/{}/pushNotificationConfigs/{}", self.task_id, self.id);
                json!({"name": name, "pushNotificationConfig": config})
            }
        }
    }

    fn read(json: &Value, task: &str) -> Result<Self> {
        let config = json.get("pushNotificationConfig").unwrap_or(json);
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let secret = |value: &Value| text(value).map(SecretString::from);
        let authentication = &config["authentication"];
        let scheme = text(&authentication["scheme"]).or_else(|| text(&authentication["schemes"][0]));
        // In REST of 0.3 the id is the last part of the name.
        let named = || Some(json["name"].as_str()?.rsplit_once("/pushNotificationConfigs/")?.1.to_owned());
        Ok(Self {
            task_id: text(&json["taskId"]).unwrap_or_else(|| task.to_owned()),
            id: text(&config["id"]).or_else(named).unwrap_or_default(),
            url: text(&config["url"]).ok_or_else(|| malformed("a webhook has no URL"))?,
            token: secret(&config["token"]),
            authentication: scheme.map(|scheme| PushAuthentication {
                scheme,
                credentials: secret(&authentication["credentials"]),
            }),
        })
    }
}

impl Client {
    /// Registers a webhook, and returns it with its id. It replaces a webhook of the same task with the same id.
    pub async fn create_push(&self, config: &PushConfig) -> Result<PushConfig> {
        let task = config.task_id.as_str();
        // In the protocol buffers of 0.3, the client chooses the id.
        let with_id;
        let config = if config.id.is_empty() && self.dialect() == Dialect::V03Rest {
            with_id = PushConfig { id: new_message_id(), ..config.clone() };
            &with_id
        } else {
            config
        };
        let params = config.write(self.dialect());
        let create = |params| Call {
            task,
            push: &config.id,
            ..Call::of(Method::CreateTaskPushNotificationConfig, params)
        };
        let created = match self.call(create(params.clone())).await {
            // The Python SDK of 0.3 expects the whole gRPC request message in the body instead of only the webhook.
            Err(error)
                if self.dialect() == Dialect::V03Rest
                    && self.interface().binding == Binding::Rest
                    && matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::AgentFailed) =>
            {
                let whole =
                    json!({"parent": format!("tasks/{task}"), "configId": config.id, "config": params});
                self.call(create(whole)).await?
            }
            other => other?,
        };
        PushConfig::read(&created, task)
    }

    /// Reads one webhook of a task.
    pub async fn push(&self, task: &str, id: &str) -> Result<PushConfig> {
        let call = self.of_push(Method::GetTaskPushNotificationConfig, task, id);
        PushConfig::read(&self.call(call).await?, task)
    }

    /// Lists the webhooks of a task.
    pub async fn pushes(&self, task: &str) -> Result<Vec<PushConfig>> {
        let mut found = Vec::new();
        let mut token = None;
        for _ in 0..MAX_PAGES {
            let mut params =
                if self.dialect() == Dialect::V1 { json!({"taskId": task}) } else { json!({"id": task}) };
            if let Some(token) = token {
                params["pageToken"] = token;
            }
            let call = Call { task, ..Call::of(Method::ListTaskPushNotificationConfigs, params) };
            let page = self.call(call).await?;
            // JSON-RPC of 0.3 returns a plain array.
            let configs = page.as_array().or_else(|| page["configs"].as_array());
            for config in configs.into_iter().flatten() {
                found.push(PushConfig::read(config, task)?);
            }
            match page["nextPageToken"].as_str() {
                Some(next) if !next.is_empty() => token = Some(next.into()),
                _ => break,
            }
        }
        Ok(found)
    }

    /// Removes a webhook of a task.
    pub async fn delete_push(&self, task: &str, id: &str) -> Result<()> {
        self.call(self.of_push(Method::DeleteTaskPushNotificationConfig, task, id)).await.map(drop)
    }

    fn of_push<'a>(&self, method: Method, task: &'a str, push: &'a str) -> Call<'a> {
        let params = match self.dialect() {
            Dialect::V1 => json!({"taskId": task, "id": push}),
            Dialect::V03Rpc | Dialect::V03Rest => json!({"id": task, "pushNotificationConfigId": push}),
        };
        Call { task, push, ..Call::of(method, params) }
    }
}
