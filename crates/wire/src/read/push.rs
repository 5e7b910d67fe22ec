//! Decodes the configurations of push notifications, and the requests about them.
//!
//! 0.3 clients wrap a configuration in three ways: JSON-RPC has one form, and REST clients use two. All of them are read in every
//! 0.3 request, and so is the flat form of 1.0.

use longshore_model::{
    CreatePushConfig, DeletePushConfig, GetPushConfig, ListPushConfigs, PushAuthentication, PushConfigId,
    PushFormat, PushRequest, PushView, Result, Secret, TaskId,
};
use serde_json::value::RawValue;

use super::query::{self, Pairs};
use super::request::{DEFAULT_PAGE_SIZE, page_size, params};
use super::{id, some_id};
use crate::json::{Fault, Object, Read, int32, int32_from_text, list, some_text, text};

#[cfg(test)]
mod tests;

/// The page size for a version or binding without pages: more configurations than a task may have.
const ALL: u32 = 1_000;

const MAX_SCHEME_BYTES: usize = 64;

/// The fields of a configuration, which all requests can contain.
macro_rules! with_fields {
    ($($name:literal),*) => { &["id", "url", "token", "authentication", $($name),*] };
}

/// Decodes a configuration inside a send. `place`: its path in the request.
pub(crate) fn in_send(raw: &RawValue, format: PushFormat, place: &'static str) -> Read<PushRequest> {
    request(&Object::read(raw, with_fields!())?, format, place)
}

pub fn create(json: &str) -> Result<CreatePushConfig> {
    params(json, with_fields!("tenant", "taskId"), |params| {
        let task = params.required("taskId", task_id)?;
        Ok(CreatePushConfig { task, request: request(params, PushFormat::V1, "")? })
    })
}

/// Decodes a REST request of 1.0. `path_id`: the task id in the path, which the body may repeat.
pub fn create_query(path_id: &str, query: Pairs<'_>, body: &str) -> Result<CreatePushConfig> {
    let task = query::read(query, |_| query::path_id(path_id))?;
    params(body, with_fields!("tenant", "taskId"), |params| {
        params.optional("taskId", |raw| is_same(&task, &text(raw)?))?;
        Ok(CreatePushConfig { request: request(params, PushFormat::V1, "")?, task })
    })
}

/// Decodes a JSON-RPC request of 0.3.
pub fn create_v03(json: &str) -> Result<CreatePushConfig> {
    params(json, WRAPPED, |params| {
        let task = params.required("taskId", task_id)?;
        Ok(CreatePushConfig { task, request: wrapped(params)? })
    })
}

/// Decodes a REST request of 0.3.
pub fn create_query_v03(path_id: &str, query: Pairs<'_>, body: &str) -> Result<CreatePushConfig> {
    let (task, named) = query::read(query, |query| {
        let named = query.get(&["configId", "config_id"], |text| some_id(text, PushConfigId::parse))?;
        Ok((query::path_id(path_id)?, named.flatten()))
    })?;
    params(body, WRAPPED, |params| {
        params.optional("taskId", |raw| is_same(&task, &text(raw)?))?;
        params.optional("parent", |raw| {
            let parent = text(raw)?;
            is_same(&task, parent.strip_prefix("tasks/").unwrap_or(&parent))
        })?;
        let named = params.optional("configId", some_config_id)?.flatten().or(named);
        let request = wrapped(params)?;
        match (&request.id, named) {
            (Some(own), Some(named)) if *own != named => {
                Err(Fault::new("is not the id in the configuration; leave one of them out").under("configId"))
            }
            (None, Some(named)) => {
                Ok(CreatePushConfig { task, request: PushRequest { id: Some(named), ..request } })
            }
            _ => Ok(CreatePushConfig { task, request }),
        }
    })
}

pub fn get(json: &str) -> Result<GetPushConfig> {
    params(json, &["tenant", "taskId", "id"], |params| {
        let task = params.required("taskId", task_id)?;
        Ok(GetPushConfig { task, id: Some(params.required("id", config_id)?) })
    })
}

pub fn get_v03(json: &str) -> Result<GetPushConfig> {
    params(json, &["tenant", "id", "pushNotificationConfigId"], |params| {
        let task = params.required("id", task_id)?;
        Ok(GetPushConfig { task, id: params.optional("pushNotificationConfigId", some_config_id)?.flatten() })
    })
}

pub fn get_query(path_id: &str, config: &str, query: Pairs<'_>) -> Result<GetPushConfig> {
    query::read(query, |_| {
        Ok(GetPushConfig { task: query::path_id(path_id)?, id: Some(path_config(config)?) })
    })
}

pub fn list_configs(json: &str) -> Result<ListPushConfigs> {
    params(json, &["tenant", "taskId", "pageSize", "pageToken"], |params| {
        let task = params.required("taskId", task_id)?;
        let size = params.optional("pageSize", |raw| some_page_size(int32(raw)?))?.flatten();
        let page_token = params.optional("pageToken", some_text)?.flatten();
        Ok(ListPushConfigs { task, page_size: size.unwrap_or(DEFAULT_PAGE_SIZE), page_token })
    })
}

pub fn list_v03(json: &str) -> Result<ListPushConfigs> {
    params(json, &["tenant", "id"], |params| {
        Ok(ListPushConfigs { task: params.required("id", task_id)?, page_size: ALL, page_token: None })
    })
}

/// Decodes a REST request of either version.
pub fn list_query(path_id: &str, query: Pairs<'_>) -> Result<ListPushConfigs> {
    query::read(query, |query| {
        let size =
            query.get(&["pageSize", "page_size"], |text| some_page_size(int32_from_text(text)?))?.flatten();
        let page_token = query.get(&["pageToken", "page_token"], |text| Ok(text.to_owned()))?;
        Ok(ListPushConfigs {
            task: query::path_id(path_id)?,
            page_size: size.unwrap_or(DEFAULT_PAGE_SIZE),
            page_token: page_token.filter(|token| !token.is_empty()),
        })
    })
}

pub fn delete(json: &str) -> Result<DeletePushConfig> {
    params(json, &["tenant", "taskId", "id"], |params| {
        let task = params.required("taskId", task_id)?;
        Ok(DeletePushConfig { task, id: params.required("id", config_id)? })
    })
}

pub fn delete_v03(json: &str) -> Result<DeletePushConfig> {
    params(json, &["tenant", "id", "pushNotificationConfigId"], |params| {
        let task = params.required("id", task_id)?;
        Ok(DeletePushConfig { task, id: params.required("pushNotificationConfigId", config_id)? })
    })
}

pub fn delete_query(path_id: &str, config: &str, query: Pairs<'_>) -> Result<DeletePushConfig> {
    query::read(query, |_| Ok(DeletePushConfig { task: query::path_id(path_id)?, id: path_config(config)? }))
}

/// The fields of a 0.3 request that creates a configuration.
const WRAPPED: &[&str] =
    with_fields!("tenant", "taskId", "parent", "configId", "config", "pushNotificationConfig");

fn wrapped(params: &Object<'_>) -> Read<PushRequest> {
    const INNER: &str = "pushNotificationConfig";
    let inner = |place| move |raw: &RawValue| in_send(raw, PushFormat::V03, place);
    let in_config = |raw| {
        let config = Object::read(raw, with_fields!("pushNotificationConfig"))?;
        match config.optional(INNER, inner("config.pushNotificationConfig"))? {
            Some(found) => Ok(found),
            None => request(&config, PushFormat::V03, "config"),
        }
    };
    if let Some(found) = params.optional("config", in_config)? {
        return Ok(found);
    }
    match params.optional("url", text)? {
        Some(_) => request(params, PushFormat::V03, ""),
        None => params.required(INNER, inner(INNER)),
    }
}

fn request(config: &Object<'_>, format: PushFormat, place: &'static str) -> Read<PushRequest> {
    Ok(PushRequest {
        place,
        id: config.optional("id", some_config_id)?.flatten(),
        url: config.required("url", text)?,
        token: config.optional("token", some_header_text)?.flatten(),
        authentication: config.optional("authentication", authentication)?.flatten(),
        format,
        // The edge sets this later, because the decoder knows neither the extensions of the request nor its caller.
        view: PushView::default(),
    })
}

/// Reads the authentication. In 0.3 there is a list of schemes; the first one is used, because there are credentials for one only.
fn authentication(raw: &RawValue) -> Read<Option<PushAuthentication>> {
    let object = Object::read(raw, &["scheme", "schemes", "credentials"])?;
    let several = object.optional("schemes", |raw| list(raw, text))?.unwrap_or_default();
    let scheme = object.optional("scheme", some_text)?.flatten().or_else(|| several.into_iter().next());
    let credentials = object.optional("credentials", some_header_text)?.flatten();
    match scheme.filter(|scheme| !scheme.is_empty()) {
        Some(scheme) if !is_scheme(&scheme) => {
            Err(Fault::new("must be a scheme of HTTP authentication, such as Bearer").under("scheme"))
        }
        Some(scheme) => Ok(Some(PushAuthentication { scheme, credentials })),
        None if credentials.is_some() => {
            Err(Fault::new("is required with credentials, for example Bearer").under("scheme"))
        }
        None => Ok(None),
    }
}

/// Whether the text is an HTTP token, as authentication schemes must be.
fn is_scheme(text: &str) -> bool {
    text.len() <= MAX_SCHEME_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Reads a secret that is sent unchanged in a header.
fn some_header_text(raw: &RawValue) -> Read<Option<Secret>> {
    let Some(secret) = some_text(raw)? else { return Ok(None) };
    if !secret.chars().all(|c| matches!(c, ' '..='~')) || secret.trim() != secret {
        return Err(Fault::new(
            "must hold only visible ASCII characters, and no spaces at its ends: it is sent in a header",
        ));
    }
    Ok(Some(Secret::new(secret)))
}

/// Reads a page size. 0 counts as absent, as for every proto3 number without field presence.
fn some_page_size(number: i32) -> Read<Option<u32>> {
    if number == 0 { Ok(None) } else { page_size(number).map(Some) }
}

fn is_same(task: &TaskId, named: &str) -> Read<()> {
    if named.is_empty() || named == task.as_str() {
        return Ok(());
    }
    Err(Fault::new("must be the task of the path, or left out"))
}

fn task_id(raw: &RawValue) -> Read<TaskId> {
    id(&text(raw)?, TaskId::parse)
}

fn config_id(raw: &RawValue) -> Read<PushConfigId> {
    id(&text(raw)?, PushConfigId::parse)
}

fn some_config_id(raw: &RawValue) -> Read<Option<PushConfigId>> {
    some_id(&text(raw)?, PushConfigId::parse)
}

fn path_config(text: &str) -> Read<PushConfigId> {
    id(text, PushConfigId::parse).map_err(|fault| fault.under("push_id"))
}
