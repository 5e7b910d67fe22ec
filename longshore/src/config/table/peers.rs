//! The agents that the gateway's own agent may call, and how much it may call them.

use super::super::setting::Fallback::{Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const PEERS: Setting = Setting {
    key: "peers",
    flag: None,
    env: Some("LONGSHORE_PEERS"),
    kind: Kind::Peers,
    fallback: Nothing,
    help: "The agents that the agent may call with the tools of [peers.md](peers.md).",
};

pub const CALLS_URLS: Setting = Setting {
    key: "calls.allow_urls",
    flag: None,
    env: Some("LONGSHORE_CALLS_ALLOW_URLS"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let the model also call agents that are not configured, by their URLs. Only hosts on the public Internet are called, over \
           HTTPS, and no credential is sent.",
};

pub const CALLS_HOSTS: Setting = Setting {
    key: "calls.allowed_hosts",
    flag: None,
    env: Some("A2A_CLIENT_ALLOWED_HOSTS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "The hosts that calls.allow_urls is for; unset: all. A peer without a credential of its own gets client.bearer_token, \
           client.basic_auth or client.api_key, if its host is listed here. `*.example.com` stands for all subdomains.",
};

pub const CALLS_PRIVATE_HOSTS: Setting = Setting {
    key: "calls.allow_private_hosts",
    flag: None,
    env: Some("A2A_CLIENT_ALLOW_PRIVATE_HOSTS"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let calls.allow_urls also lead to private and loopback addresses, and over HTTP. Configured peers may always be there.",
};

pub const CALLS_AT_ONCE: Setting = Setting {
    key: "calls.at_once",
    flag: None,
    env: Some("LONGSHORE_CALLS_AT_ONCE"),
    kind: Kind::AtLeastOne,
    fallback: Value("4"),
    help: "How many calls of one task may run at the same time. A further one is refused, and the model is told to wait.",
};

pub const CALLS_PER_TASK: Setting = Setting {
    key: "calls.per_task",
    flag: None,
    env: Some("LONGSHORE_CALLS_PER_TASK"),
    kind: Kind::AtLeastOne,
    fallback: Value("20"),
    help: "How many calls one task may make in all.",
};

pub const CALLS_DURATION: Setting = Setting {
    key: "calls.timeout",
    flag: None,
    env: Some("LONGSHORE_CALLS_TIMEOUT"),
    kind: Kind::Seconds,
    fallback: Value("3600"),
    help: "How long one call may take, with all waits for answers. Then it is canceled.",
};

pub const CALLS_RESULT_BYTES: Setting = Setting {
    key: "calls.max_result_bytes",
    flag: None,
    env: Some("LONGSHORE_CALLS_MAX_RESULT_BYTES"),
    kind: Kind::Size,
    fallback: Value("131072"),
    help: "How many bytes of text and artifacts the model gets of one call. The rest is left out, and the model is told so.",
};

pub const CALLS_ASKS: Setting = Setting {
    key: "calls.max_asks",
    flag: None,
    env: Some("LONGSHORE_CALLS_MAX_ASKS"),
    kind: Kind::CountOrNone,
    fallback: Value("10"),
    help: "How often the called agent may ask something. Then the call is canceled.",
};

pub const CALLS_HOPS: Setting = Setting {
    key: "calls.max_hops",
    flag: None,
    env: Some("LONGSHORE_CALLS_MAX_HOPS"),
    kind: Kind::AtLeastOne,
    fallback: Value("4"),
    help: "Over how many gateways agents may call each other, one calling the next. A longer chain is refused.",
};

pub const CALLS_RETURNS: Setting = Setting {
    key: "calls.max_returns",
    flag: None,
    env: Some("LONGSHORE_CALLS_MAX_RETURNS"),
    kind: Kind::CountOrNone,
    fallback: Value("0"),
    help: "How often such a chain may come back to this gateway. 0 stops every loop at once.",
};
