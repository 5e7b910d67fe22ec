//! A push configuration as text and sealed bytes.

use longshore_engine::port::{NewPushConfig, PushLimits, caller_trace};
use longshore_model::{
    Error, ErrorKind, Principal, PushAuthentication, PushConfig, PushConfigId, PushEvents, PushFormat,
    PushView, PushWord, Result, Secret, Seq, TaskId, Timestamp, TraceContext,
};
use longshore_seal::Sealer;
use rusqlite::Row;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::super::fault::{Outcome, damaged};
use super::super::read::{decode, text, text_or_null};
use super::super::record::to_text;

/// The columns with which a row for [`StoredPush::read`] must begin.
pub(super) const COLUMNS: &str =
    "tasks.id, push_configs.id, push_configs.owner, format, events, view, trace, sealed, created";

/// A configuration, ready to insert.
pub(in crate::sqlite) struct NewPush {
    pub(in crate::sqlite) owner: Principal,
    pub(super) task: TaskId,
    pub(super) id: PushConfigId,
    pub(super) format: PushFormat,
    pub(super) wanted: PushEvents,
    pub(super) events: String,
    pub(super) view: String,
    pub(super) trace: Option<String>,
    pub(super) sealed: Vec<u8>,
    pub(super) created: Timestamp,
    pub(super) after: Seq,
    pub(super) limits: PushLimits,
}

/// A stored configuration whose secrets are sealed.
pub(super) struct StoredPush {
    pub(super) owner: Principal,
    pub(super) trace: Option<TraceContext>,
    config: PushConfig,
    sealed: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct ViewText {
    extensions: Vec<String>,
    raw_thinking: bool,
    tool_trace: bool,
}

/// The part of a configuration that is sealed. The URL is part of it because many receivers authenticate their callers by a secret
/// URL.
#[derive(Serialize, Deserialize)]
struct SecretText {
    url: String,
    token: Option<String>,
    scheme: Option<String>,
    credentials: Option<String>,
}

impl NewPush {
    pub(in crate::sqlite) fn prepare(new: NewPushConfig, sealer: &Sealer) -> Result<Self> {
        let NewPushConfig { owner, config, after, limits } = new;
        let PushConfig { id, task, url, token, authentication, format, events, view, created } = config;
        let authentication = authentication.as_ref();
        let secrets = to_text(&SecretText {
            url,
            token: token.map(|token| token.expose().to_owned()),
            scheme: authentication.map(|authentication| authentication.scheme.clone()),
            credentials: authentication
                .and_then(|authentication| Some(authentication.credentials.as_ref()?.expose().to_owned())),
        })?;
        let PushView { extensions, raw_thinking, tool_trace } = view;
        Ok(Self {
            sealed: sealer
                .seal(&context(task.as_str(), id.as_str()), secrets.as_bytes())
                .map_err(unusable)?,
            owner,
            task,
            id,
            format,
            wanted: events,
            events: write_events(events),
            view: to_text(&ViewText { extensions, raw_thinking, tool_trace })?,
            trace: caller_trace().map(|trace| trace.traceparent()),
            created,
            after,
            limits,
        })
    }
}

impl StoredPush {
    pub(super) fn read(row: &Row<'_>) -> Outcome<Self> {
        let id = text("push configuration", row, 1)?;
        let what = format!("push configuration {id}");
        let task = TaskId::parse(text(&what, row, 0)?).map_err(|cause| damaged(&what, cause))?;
        let format = PushFormat::parse(text(&what, row, 3)?);
        let ViewText { extensions, raw_thinking, tool_trace } = decode(&what, row.get_ref(5)?)?;
        let config = PushConfig {
            id: PushConfigId::parse(id).map_err(|cause| damaged(&what, cause))?,
            task,
            url: String::new(),
            token: None,
            authentication: None,
            format: format.ok_or_else(|| damaged(&what, "unknown format"))?,
            events: read_events(text(&what, row, 4)?).ok_or_else(|| damaged(&what, "unknown event"))?,
            view: PushView { extensions, raw_thinking, tool_trace },
            created: Timestamp(row.get(8)?),
        };
        Ok(Self {
            owner: Principal::new(text(&what, row, 2)?),
            trace: text_or_null(&what, row, 6)?.and_then(TraceContext::parse),
            config,
            sealed: row.get(7)?,
        })
    }

    pub(super) fn id(&self) -> (&TaskId, &PushConfigId) {
        (&self.config.task, &self.config.id)
    }

    pub(super) fn open(self, sealer: &Sealer) -> Result<PushConfig> {
        let mut config = self.config;
        let opened = sealer
            .open(&context(config.task.as_str(), config.id.as_str()), &self.sealed)
            .map_err(unusable)?;
        let secrets: SecretText = serde_json::from_slice(opened.expose_secret()).map_err(Error::internal)?;
        config.url = secrets.url;
        config.token = secrets.token.map(Secret::new);
        config.authentication = secrets
            .scheme
            .map(|scheme| PushAuthentication { scheme, credentials: secrets.credentials.map(Secret::new) });
        Ok(config)
    }
}

/// The context with which a configuration's secrets are sealed. With it, a sealed value opens only in its own row.
pub(super) fn context(task: &str, id: &str) -> Vec<u8> {
    format!("push/{task}/{id}").into_bytes()
}

fn unusable(cause: longshore_seal::Error) -> Error {
    let text = "The secrets of a push configuration cannot be stored or read. The gateway's operator finds the reason in its log.";
    Error::new(ErrorKind::Unavailable, text).caused_by(cause)
}

fn write_events(events: PushEvents) -> String {
    events.words().map(PushWord::as_str).collect::<Vec<_>>().join(",")
}

pub(super) fn read_events(words: &str) -> Option<PushEvents> {
    words.split(',').filter(|word| !word.is_empty()).map(PushWord::parse).collect()
}
