//! Checks that the turns of a context ran one after the other, in the order in which they were sent.

use longshore_model::{TaskState, Timestamp};
use longshore_wire::v1::decode::StreamEvent;

use super::super::record::Record;
use super::super::speaker::ClientProtocol;
use super::{AgentRecord, Fault, Finding, Observation, whose};

pub(super) fn check(
    observations: &[Observation],
    agent_records: &[AgentRecord],
    findings: &mut Vec<Finding>,
) {
    for second in observations {
        let Some(id) = &second.record.planned.follows else { continue };
        let Some(first) = observations.iter().find(|first| first.record.planned.id == *id) else { continue };
        let mut report = |detail: String| {
            let whose = format!("{} after {}", whose(&second.record), whose(&first.record));
            findings.push(Finding { fault: Fault::Reordered, whose, detail });
        };
        let position =
            |record: &Record| agent_records.iter().position(|known| known.words == record.planned.words);
        if let (Some(earlier), Some(later)) = (position(&first.record), position(&second.record))
            && earlier > later
        {
            report("the agent received the second message first".to_owned());
        }
        if let (Some(end), Some(begin)) = (ended_at(first), began_at(second))
            && begin < end
        {
            report(format!("the second turn began at {}, before the end of the first at {}", begin.0, end.0));
        }
    }
}

pub(super) fn ended_at(observation: &Observation) -> Option<Timestamp> {
    at(observation, TaskState::is_terminal)
}

pub(super) fn began_at(observation: &Observation) -> Option<Timestamp> {
    at(observation, |state| state == TaskState::Working)
}

/// When the log first reports such a state.
fn at(observation: &Observation, is_wanted: impl Fn(TaskState) -> bool) -> Option<Timestamp> {
    let speaker: ClientProtocol = observation.record.planned.speaker;
    observation.log.iter().flatten().find_map(|frame| {
        let status = match speaker.event(&frame.json).ok()? {
            StreamEvent::Task(task) => task.status,
            StreamEvent::Status { update, .. } => update.status,
            StreamEvent::Message(_) | StreamEvent::Artifact { .. } => return None,
        };
        is_wanted(status.state).then_some(status.at)
    })
}
