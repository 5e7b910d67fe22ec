//! The commands that call an agent: `longshore call` and others.

use super::super::setting::Fallback::{Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const CLIENT_TIMEOUT: Setting = Setting {
    key: "client.timeout",
    flag: None,
    env: Some("A2A_CLIENT_TIMEOUT_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("30"),
    help: "How long an agent may take to respond to `longshore call` and the other commands of docs/client.md, and how \
           long its streams may be silent before the task is looked at.",
};

pub const CLIENT_CARD_TIMEOUT: Setting = Setting {
    key: "client.card_timeout",
    flag: None,
    env: Some("A2A_CLIENT_CARD_FETCH_TIMEOUT_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("5"),
    help: "How long these commands wait for the card of an agent.",
};

pub const CLIENT_BEARER_TOKEN: Setting = Setting {
    key: "client.bearer_token",
    flag: None,
    env: Some("A2A_CLIENT_BEARER_TOKEN"),
    kind: Kind::Secret,
    fallback: Nothing,
    help: "The bearer token that these commands send to an agent that is named by its URL. It is sent only to the server of that URL.",
};

pub const CLIENT_BASIC_AUTH: Setting = Setting {
    key: "client.basic_auth",
    flag: None,
    env: Some("A2A_CLIENT_BASIC_AUTH"),
    kind: Kind::Secret,
    fallback: Nothing,
    help: "The same for a user name and a password, as user:password or its base64. A bearer token has priority.",
};

pub const CLIENT_API_KEY: Setting = Setting {
    key: "client.api_key",
    flag: None,
    env: Some("A2A_CLIENT_API_KEY"),
    kind: Kind::Secret,
    fallback: Nothing,
    help: "The same for an API key. It is sent in the header that the card names, or else in X-API-Key.",
};

pub const CLIENT_TRANSPORTS: Setting = Setting {
    key: "client.transports",
    flag: None,
    env: Some("A2A_CLIENT_SUPPORTED_TRANSPORTS"),
    kind: Kind::List,
    fallback: Value("JSONRPC,HTTP+JSON,GRPC"),
    help: "The bindings over which these commands may call an agent. The first interface of the card with one of them is used.",
};

pub const CLIENT_OWN_ORDER: Setting = Setting {
    key: "client.use_client_preference",
    flag: None,
    env: Some("A2A_CLIENT_USE_CLIENT_PREFERENCE"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Use the first of client.transports that the agent offers, instead of the agent's own order.",
};

pub const CLIENT_PROTOCOL_VERSION: Setting = Setting {
    key: "client.protocol_version",
    flag: None,
    env: Some("A2A_CLIENT_PROTOCOL_VERSION"),
    kind: Kind::Choice(&["0.3", "1.0"]),
    fallback: Nothing,
    help: "The only version of A2A over which these commands call an agent. Unset: the order of its card decides.",
};

pub const CLIENT_POLLING: Setting = Setting {
    key: "client.polling",
    flag: None,
    env: Some("A2A_CLIENT_POLLING_FALLBACK_ENABLED"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Use the intervals and the time limit of client.polling_* when a task is looked at again and again, because its agent has \
           no stream for it. Otherwise these are the default intervals, and there is no time limit.",
};

pub const CLIENT_POLLING_INITIAL: Setting = Setting {
    key: "client.polling_initial",
    flag: None,
    env: Some("A2A_CLIENT_POLLING_FALLBACK_INITIAL_INTERVAL_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("0.5"),
    help: "The first interval between two looks at a task. Counts only with client.polling.",
};

pub const CLIENT_POLLING_LONGEST: Setting = Setting {
    key: "client.polling_longest",
    flag: None,
    env: Some("A2A_CLIENT_POLLING_FALLBACK_MAX_INTERVAL_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("2"),
    help: "The longest interval between two looks at a task. Counts only with client.polling.",
};

pub const CLIENT_POLLING_FACTOR: Setting = Setting {
    key: "client.polling_factor",
    flag: None,
    env: Some("A2A_CLIENT_POLLING_FALLBACK_BACKOFF_MULTIPLIER"),
    kind: Kind::Factor,
    fallback: Value("2"),
    help: "Each interval is so many times the one before. Counts only with client.polling.",
};

pub const CLIENT_POLLING_TIMEOUT: Setting = Setting {
    key: "client.polling_timeout",
    flag: None,
    env: Some("A2A_CLIENT_POLLING_FALLBACK_TIMEOUT_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("10"),
    help: "How long a task is looked at in all. Then the command ends with exit code 7, and the task goes on. Counts only with client.polling.",
};

pub const CLIENT_CACHE_LIFETIME: Setting = Setting {
    key: "client.card_cache_lifetime",
    flag: None,
    env: Some("A2A_CLIENT_CACHE_TTL_SECONDS"),
    kind: Kind::SecondsOrOff,
    fallback: Value("900"),
    help: "How long one run of a command uses a card that it has read. Then it asks the agent whether the card has changed.",
};

pub const CLIENT_CACHE_SIZE: Setting = Setting {
    key: "client.card_cache_size",
    flag: None,
    env: Some("A2A_CLIENT_CACHE_MAXSIZE"),
    kind: Kind::CountOrNone,
    fallback: Value("256"),
    help: "How many cards one run of a command keeps.",
};
