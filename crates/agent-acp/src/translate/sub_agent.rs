//! Calls of sub-agents. ACP has no message for them: a tool call is one if its input contains a `subagent_type`.
//!
//! The agent names the session of a sub-agent only at the end of the call. Agents that report the steps of a sub-agent report them
//! in the session of the turn. Each agent marks them differently or not at all, so these steps stay in the task of the turn.
//! Therefore the child task begins with the call, has an id that the gateway makes, and gets the result and the list of tools at
//! the end.

use longshore_model::{
    AgentEvent, BlockKind, ChildEvent, ChildStart, Failure, Json, Outcome, PromptId, SessionId, SessionNote,
    ToolCall, ToolStatus,
};
use serde::Deserialize;
use serde_json::Value;

use super::Ids;
use crate::schema::ToolUpdate;
use crate::schema::lenient::list;

/// How many tools of a sub-agent are listed. The rest is left out.
const MAX_SUMMARY: usize = 256;

const NO_STEPS: &str = "The steps of this sub-agent are not shown here. Those that the agent reports are in the task that called the sub-agent.";

const NO_REASON: &str =
    "What the agent reports about the work of this sub-agent is in the task that called the sub-agent.";

/// The known facts about a sub-agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubAgent {
    /// The type of sub-agent, such as `general`.
    pub kind: String,
    pub title: Option<String>,
    pub prompt: String,
    /// The sub-agent's model, as `provider/model`. Known at the end.
    pub model: Option<String>,
    /// The agent's own id of the sub-agent's session. Known at the end.
    pub session: Option<String>,
}

/// The sub-agent that a call starts, if the update shows one. The first update of a call has no input yet.
pub(super) fn find(update: &ToolUpdate, title: Option<&str>) -> Option<SubAgent> {
    let input = update.raw_input.as_ref().map_or(Value::Null, Json::to_value);
    let member = |name: &str| input.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = member("subagent_type").or(update.sub_agent.as_deref()).filter(|kind| !kind.is_empty())?;
    Some(SubAgent {
        kind: kind.to_owned(),
        title: member("description").or(update.description.as_deref()).or(title).map(str::to_owned),
        prompt: member("prompt").unwrap_or_default().to_owned(),
        model: None,
        session: None,
    })
}

/// A sub-agent whose child task has been started.
#[derive(Debug)]
pub(super) struct Running {
    facts: SubAgent,
    /// The id of the child task's session in the gateway.
    session: SessionId,
}

impl Running {
    pub(super) fn start(
        facts: SubAgent,
        call: &str,
        caller: &SessionId,
        ids: &mut Ids,
        out: &mut Vec<AgentEvent>,
    ) -> Self {
        let session = SessionId::parse(&ids.next("s")).expect("the prefix is an id and is short");
        let prompt = PromptId::parse(session.as_str()).expect("the id of a session is an id");
        let this = Self { facts, session };
        let start = ChildStart {
            caller: caller.clone(),
            call: Some(call.to_owned()),
            prompt: this.facts.prompt.clone(),
            title: this.facts.title.clone(),
            kind: Some(this.facts.kind.clone()),
            model: this.facts.model.clone(),
        };
        this.report(ChildEvent::Started(start), out);
        this.report(ChildEvent::Working(prompt), out);
        this
    }

    pub(super) fn facts(&self) -> &SubAgent {
        &self.facts
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.session
    }

    /// Ends the sub-agent, because its call is over.
    pub(super) fn end(
        &mut self,
        call: &ToolCall,
        raw: Option<&Json>,
        ids: &mut Ids,
        out: &mut Vec<AgentEvent>,
    ) {
        let RawOutput { output, metadata } =
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let text = output.as_deref().or(call.output.as_deref()).unwrap_or_default();
        self.facts.session = metadata.session.or_else(|| session_in(text).map(str::to_owned));
        self.facts.model = metadata.model.and_then(|model| match (model.provider, model.model) {
            (Some(provider), Some(model)) => Some(format!("{provider}/{model}")),
            (_, model) => model,
        });
        if let Some(model) = &self.facts.model {
            self.report(ChildEvent::Model(model.clone()), out);
        }
        if let Some(id) = self.facts.session.as_deref().and_then(|id| SessionId::parse(id).ok()) {
            let note = SessionNote { id, title: self.facts.title.clone() };
            self.report(ChildEvent::Report(AgentEvent::Session(note)), out);
        }
        for entry in metadata.summary.into_iter().take(MAX_SUMMARY) {
            let block = ids.block(BlockKind::ToolCall, None);
            let event = AgentEvent::Tool { block, call: Box::new(entry.into_call()) };
            self.report(ChildEvent::Report(event), out);
        }
        let outcome = if call.status == ToolStatus::Completed {
            let result = result_in(text).trim();
            if !result.is_empty() {
                let block = ids.block(BlockKind::Text, None);
                let text = AgentEvent::Text { block: block.clone(), text: result.to_owned() };
                self.report(ChildEvent::Report(text), out);
                self.report(ChildEvent::Report(AgentEvent::TextEnded { block }), out);
            }
            Outcome::Completed { remark: Some(NO_STEPS.to_owned()) }
        } else {
            let why = call.error.as_deref().unwrap_or("The call of the sub-agent failed.");
            Outcome::Failed(Failure::new(format!("{} {NO_REASON}", longshore_model::redact::public(why))))
        };
        self.report(ChildEvent::Report(AgentEvent::Ended(outcome)), out);
    }

    fn report(&self, event: ChildEvent, out: &mut Vec<AgentEvent>) {
        out.push(AgentEvent::Child { session: self.session.clone(), event: Box::new(event) });
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawOutput {
    output: Option<String>,
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "sessionId")]
    session: Option<String>,
    model: Option<ModelName>,
    #[serde(deserialize_with = "list")]
    summary: Vec<SummaryEntry>,
}

#[derive(Deserialize)]
struct ModelName {
    #[serde(rename = "providerID")]
    provider: Option<String>,
    #[serde(rename = "modelID")]
    model: Option<String>,
}

/// One tool call of the sub-agent.
#[derive(Deserialize)]
struct SummaryEntry {
    #[serde(default)]
    id: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    state: SummaryState,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SummaryState {
    status: String,
    title: Option<String>,
}

impl SummaryEntry {
    fn into_call(self) -> ToolCall {
        let is_error = self.state.status == "error";
        let status = if is_error { ToolStatus::Error } else { ToolStatus::Completed };
        ToolCall {
            title: self.state.title,
            error: is_error.then(|| "The tool failed; the agent does not report why.".to_owned()),
            ..ToolCall::new(self.id, self.tool, status)
        }
    }
}

/// The session that the output names: `session_id: …` in a `<task_metadata>` block, or the id of a `<task>` element.
fn session_in(text: &str) -> Option<&str> {
    let in_block = || {
        let (_, block) = text.split_once("<task_metadata>")?;
        let (block, _) = block.split_once("</task_metadata>")?;
        block.lines().find_map(|line| line.trim().strip_prefix("session_id:")).map(str::trim)
    };
    let in_element = || Some(text.trim_start().strip_prefix("<task id=\"")?.split_once('"')?.0);
    in_block().or_else(in_element)
}

/// The result of the sub-agent, without the tags around it.
fn result_in(text: &str) -> &str {
    if let Some((_, rest)) = text.split_once("<task_result>") {
        return rest.rsplit_once("</task_result>").map_or(rest, |(result, _)| result);
    }
    text.split_once("<task_metadata>").map_or(text, |(result, _)| result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_and_the_result_are_found_in_both_forms_of_output() {
        let old = "\ngithub.com/x\n\n<task_metadata>\nsession_id: ses_1\n</task_metadata>";
        assert_eq!((session_in(old), result_in(old).trim()), (Some("ses_1"), "github.com/x"));
        let new =
            "<task id=\"ses_2\" state=\"completed\">\n<task_result>\nalpha <b>\n</task_result>\n</task>";
        assert_eq!((session_in(new), result_in(new).trim()), (Some("ses_2"), "alpha <b>"));
        assert_eq!((session_in("plain"), result_in("plain")), (None, "plain"));
    }
}
