//! Decides which session makes a tool call.

use std::sync::Arc;

use longshore_engine::port::BoxFuture;
use longshore_mcp::{CALL_KEY, Callers, IncomingCall};
use longshore_meter::Metrics;
use longshore_model::{CALLER_ARGUMENT, SessionId};
use longshore_peers::{CallKey, ToolCaller, ToolError, refused_unknown};
use rand::distr::{Alphanumeric, SampleString as _};
use serde_json::Value;

use crate::opencode::plugin_key;
use crate::secret::verifies_with;
use crate::{Secret, Tickets, Token};

const LONGEST_KEY: usize = 64;

const NO_PROOF: &str = "The call was refused, because the gateway does not know which session it comes from. OpenCode must have the \
                        plugin `opencode-plugin.js` of the gateway's data directory. Tell the user.";

const WRONG_PROOF: &str = "The call was refused: the argument `_longshore` was not made by the gateway's plugin. Leave it out; the \
                           plugin adds it.";

const UNBOUND: &str = "The call was refused, because the gateway does not know the session of this MCP server. Tell the user to \
                       open a new session.";

const UNTESTED: &str = "The call was refused: Longshore was not tested with this agent, so the gateway does not know whether each session \
                        has an MCP server of its own, and which session calls. The operator can say so with `mcp_per_session` in \
                        `[[agents]]`. Tell the user.";

/// Identifies the callers of one connection.
#[derive(Debug)]
pub(crate) struct Identify {
    pub(crate) token: Token,
    pub(crate) secret: Secret,
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Callers for Identify {
    fn identify<'a>(
        &'a self,
        call: &'a mut IncomingCall,
    ) -> BoxFuture<'a, Result<(ToolCaller, CallKey), ToolError>> {
        Box::pin(async {
            let proof = call.arguments.remove(CALLER_ARGUMENT);
            let found = self.session(proof).await;
            let (session, tool_call) = found.map_err(|why| self.refuse(&call.tool, why))?;
            let key = CallKey(format!("{}:{}", session.as_str(), key(call)));
            Ok((ToolCaller::Session { session, tool_call }, key))
        })
    }
}

impl Identify {
    /// The session that calls, and the agent's id of the tool call if the plugin signed one. The error says why the session is
    /// unknown.
    async fn session(&self, proof: Option<Value>) -> Result<(SessionId, Option<String>), &'static str> {
        match (proof, &self.token) {
            (_, Token::Untested) => Err(UNTESTED),
            (Some(proof), _) => self.proven(&proof).ok_or(WRONG_PROOF),
            (None, Token::OpenCode) => Err(NO_PROOF),
            (None, Token::Session(session)) => Ok((session.clone(), None)),
            (None, Token::Ticket(name)) => Ok((self.tickets.session(name).await.ok_or(UNBOUND)?, None)),
        }
    }

    /// Records and counts the refusal.
    fn refuse(&self, tool: &str, why: &str) -> ToolError {
        let session = match &self.token {
            Token::Session(session) => Some(session),
            Token::OpenCode | Token::Ticket(_) | Token::Untested => None,
        };
        refused_unknown(&self.metrics, session, tool, why);
        ToolError(why.to_owned())
    }

    /// The session and the tool call id that the plugin signed. `None`: the proof is not valid.
    fn proven(&self, proof: &Value) -> Option<(SessionId, Option<String>)> {
        let word = |name: &str| proof.get(name).and_then(Value::as_str);
        let (session, call, signature) = (word("session")?, word("call")?, word("proof")?);
        if !verifies_with(&plugin_key(&self.secret), &[session, call], signature) {
            return None;
        }
        Some((SessionId::parse(session).ok()?, Some(call.to_owned())))
    }
}

/// The idempotency key that the bridge gave the call. A call without one gets a new random key.
fn key(call: &IncomingCall) -> String {
    let given = call.meta.get(CALL_KEY).and_then(Value::as_str).filter(|key| key.len() <= LONGEST_KEY);
    given.map_or_else(|| Alphanumeric.sample_string(&mut rand::rng(), LONGEST_KEY / 2), str::to_owned)
}

#[cfg(test)]
mod tests {
    use longshore_meter::label::PeerCall;
    use serde_json::{Map, json};

    use super::*;
    use crate::secret::sign_with;

    const SECRET: [u8; 32] = [7; 32];

    fn identify(token: Token) -> Identify {
        let metrics = Arc::new(Metrics::new("test"));
        Identify { token, secret: Secret::new(SECRET), tickets: Arc::default(), metrics }
    }

    fn call(proof: Option<Value>) -> IncomingCall {
        let mut arguments = Map::from_iter([("text".to_owned(), json!("hello"))]);
        arguments.extend(proof.map(|proof| (CALLER_ARGUMENT.to_owned(), proof)));
        let meta = Map::from_iter([(CALL_KEY.to_owned(), json!("k1"))]);
        IncomingCall { tool: "a2a_call".to_owned(), arguments, meta, request_id: "1".to_owned() }
    }

    fn proof(session: &str, call: &str) -> Value {
        let signature = sign_with(&plugin_key(&Secret::new(SECRET)), &[session, call]);
        json!({"session": session, "call": call, "proof": signature})
    }

    async fn check(token: Token, proof: Option<Value>, expected: Result<(&str, Option<&str>), &str>) {
        let mut call = call(proof);
        let identify = identify(token);
        let found = identify.identify(&mut call).await;
        let refused = identify.metrics.peer_calls.of(PeerCall::Refused).get();
        assert_eq!(refused, u64::from(expected.is_err()), "a refusal is counted");
        assert!(!call.arguments.contains_key(CALLER_ARGUMENT), "the tool never sees the proof");
        match (found, expected) {
            (Ok((ToolCaller::Session { session, tool_call }, key)), Ok((expected, expected_call))) => {
                assert_eq!((session.as_str(), tool_call.as_deref()), (expected, expected_call));
                assert_eq!(key, CallKey(format!("{expected}:k1")));
            }
            (Err(error), Err(expected)) => assert_eq!(error.0, expected),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[tokio::test]
    async fn opencode_names_the_session_with_a_proof_only() {
        let valid = proof("ses_1", "call_1");
        check(Token::OpenCode, Some(valid.clone()), Ok(("ses_1", Some("call_1")))).await;
        check(Token::OpenCode, None, Err(NO_PROOF)).await;
        for (name, value) in [("session", "ses_2"), ("call", "call_2"), ("proof", "")] {
            let mut changed = valid.clone();
            changed[name] = json!(value);
            check(Token::OpenCode, Some(changed), Err(WRONG_PROOF)).await;
        }
        for nonsense in [json!(null), json!("ses_1"), json!({}), json!({"session": 1})] {
            check(Token::OpenCode, Some(nonsense), Err(WRONG_PROOF)).await;
        }
    }

    #[tokio::test]
    async fn another_agent_is_known_by_the_token_of_its_bridge() {
        let own = Token::Session(SessionId::parse("ses_1").unwrap());
        check(own.clone(), None, Ok(("ses_1", None))).await;
        check(own, Some(json!({"session": "ses_2", "call": "c", "proof": "x"})), Err(WRONG_PROOF)).await;
        check(Token::Ticket("unknown".to_owned()), None, Err(UNBOUND)).await;
        check(Token::Untested, None, Err(UNTESTED)).await;
    }
}
