//! Push notifications.

use super::super::setting::Fallback::{Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const PUSH: Setting = Setting {
    key: "push.enabled",
    flag: Some("push-notifications"),
    env: Some("A2A_PUSH_NOTIFICATIONS"),
    kind: Kind::Switch,
    fallback: Value("true"),
    help: "Let callers register webhooks for their tasks. When off, such requests are refused \
           (PUSH_NOTIFICATION_NOT_SUPPORTED), and the card says so.",
};

pub const PUSH_EVENTS: Setting = Setting {
    key: "push.events",
    flag: Some("push-events"),
    env: Some("LONGSHORE_PUSH_EVENTS"),
    kind: Kind::List,
    fallback: Value("input_required,auth_required,completed,failed,canceled,rejected"),
    help: "Which events are sent to a webhook, if the request that registers it does not say so in \
           metadata.shared.push.events: states of the task, and artifact for output of the agent; or all.",
};

pub const PUSH_HTTP: Setting = Setting {
    key: "push.allow_http",
    flag: Some("push-allow-http"),
    env: Some("LONGSHORE_PUSH_ALLOW_HTTP"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Also call webhooks over http. Anybody on the way can then read the events and the credentials.",
};

pub const PUSH_PORTS: Setting = Setting {
    key: "push.ports",
    flag: Some("push-ports"),
    env: Some("LONGSHORE_PUSH_PORTS"),
    kind: Kind::List,
    fallback: Value("80,443,1024-65535"),
    help: "The ports of webhooks that may be called: numbers, and ranges such as 8000-8999.",
};

pub const PUSH_HOSTS: Setting = Setting {
    key: "push.hosts",
    flag: Some("push-hosts"),
    env: Some("LONGSHORE_PUSH_HOSTS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "The hosts of webhooks that may be called: names, and *.example.com for every subdomain. Without this setting, \
           every host on the public Internet may be called.",
};

pub const PUSH_INTERNAL_HOSTS: Setting = Setting {
    key: "push.internal_hosts",
    flag: Some("push-internal-hosts"),
    env: Some("LONGSHORE_PUSH_INTERNAL_HOSTS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Hosts of webhooks whose names may lead to private and loopback addresses, such as hooks.corp.example. \
           Link-local addresses, where clouds keep their metadata, stay refused.",
};

pub const PUSH_INTERNAL_NETWORKS: Setting = Setting {
    key: "push.internal_networks",
    flag: Some("push-internal-networks"),
    env: Some("LONGSHORE_PUSH_INTERNAL_NETWORKS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Networks outside the public Internet whose addresses may be called, under any name: such as 10.1.2.0/24, or \
           127.0.0.1/32 for receivers on this machine. Every caller with a credential can then make the gateway send \
           requests there.",
};

pub const PUSH_SECRET_BYTES: Setting = Setting {
    key: "push.max_secret_bytes",
    flag: Some("push-max-secret-bytes"),
    env: Some("LONGSHORE_PUSH_MAX_SECRET_BYTES"),
    kind: Kind::Size,
    fallback: Value("4096"),
    help: "The longest token and the longest credentials of a webhook.",
};

pub const PUSH_CONFIGS_PER_TASK: Setting = Setting {
    key: "push.configs_per_task",
    flag: Some("max-push-configs-per-task"),
    env: Some("LONGSHORE_MAX_PUSH_CONFIGS_PER_TASK"),
    kind: Kind::Count,
    fallback: Value("10"),
    help: "How many webhooks one task may have. One more is refused with status 429.",
};

pub const PUSH_CONFIGS_PER_PRINCIPAL: Setting = Setting {
    key: "push.configs_per_principal",
    flag: Some("max-push-configs-per-principal"),
    env: Some("LONGSHORE_MAX_PUSH_CONFIGS_PER_PRINCIPAL"),
    kind: Kind::Count,
    fallback: Value("1000"),
    help: "How many webhooks the tasks of one principal may have together. Those of a finished task do not count once all \
           its events are sent.",
};

pub const PUSH_CONFIGS: Setting = Setting {
    key: "push.configs",
    flag: Some("max-push-configs"),
    env: Some("LONGSHORE_MAX_PUSH_CONFIGS"),
    kind: Kind::Count,
    fallback: Value("100000"),
    help: "How many webhooks all tasks may have together, counted in the same way.",
};

pub const PUSH_ATTEMPTS: Setting = Setting {
    key: "push.attempts",
    flag: Some("push-attempts"),
    env: Some("LONGSHORE_PUSH_ATTEMPTS"),
    kind: Kind::Size,
    fallback: Value("1500"),
    help: "How often an event is sent to a webhook that fails, with pauses that grow to a minute, before it becomes a dead \
           letter (`longshore push dead`).",
};

pub const PUSH_MAX_AGE: Setting = Setting {
    key: "push.max_age",
    flag: Some("push-max-age"),
    env: Some("LONGSHORE_PUSH_MAX_AGE_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("86400"),
    help: "For how many seconds a webhook may fail. After that, each event gets one attempt before it becomes a dead letter, until \
           one succeeds.",
};

pub const PUSH_CALLS: Setting = Setting {
    key: "push.calls",
    flag: Some("push-calls"),
    env: Some("LONGSHORE_PUSH_CALLS"),
    kind: Kind::Size,
    fallback: Value("256"),
    help: "How many webhooks are called at a time. Half of them at most for one principal, and half at most for hosts that fail.",
};

pub const PUSH_CALLS_PER_HOST: Setting = Setting {
    key: "push.calls_per_host",
    flag: Some("push-calls-per-host"),
    env: Some("LONGSHORE_PUSH_CALLS_PER_HOST"),
    kind: Kind::Size,
    fallback: Value("8"),
    help: "How many webhooks of one host are called at a time for one principal.",
};

pub const PUSH_CONNECT_TIMEOUT: Setting = Setting {
    key: "push.connect_timeout",
    flag: Some("push-connect-timeout"),
    env: Some("LONGSHORE_PUSH_CONNECT_TIMEOUT_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("5"),
    help: "How long the connection to a webhook may take, the lookup of its name and TLS included.",
};

pub const PUSH_RESPONSE_TIMEOUT: Setting = Setting {
    key: "push.response_timeout",
    flag: Some("push-response-timeout"),
    env: Some("LONGSHORE_PUSH_RESPONSE_TIMEOUT_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("15"),
    help: "How long a webhook may take to answer.",
};

pub const PUSH_BODY_BYTES: Setting = Setting {
    key: "push.max_body_bytes",
    flag: Some("push-max-body-bytes"),
    env: Some("LONGSHORE_PUSH_MAX_BODY_BYTES"),
    kind: Kind::Size,
    fallback: Value("262144"),
    help: "The longest body that is sent to a webhook. A longer one is cut off, and says that the task has the rest.",
};

pub const KEYS: Setting = Setting {
    key: "push.keys",
    flag: None,
    env: Some("LONGSHORE_KEYS"),
    kind: Kind::Secret,
    fallback: Nothing,
    help: "The keys that seal the URLs and credentials of webhooks in the store, as id:base64 of 32 bytes, separated by commas; \
           the first one seals. Without this setting the gateway makes a key and keeps it in the file `keys` of the data \
           directory.",
};
