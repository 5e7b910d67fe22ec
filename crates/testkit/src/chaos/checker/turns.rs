//! Whether the turns of a context came one after the other, in the order in which they were sent.

use longshore_model::{TaskState, Timestamp};
use longshore_wire::v1::decode::StreamEvent;

use super::super::record::Record;
use super::super::speaker::Speaker;
use super::{Fault, Finding, Testimony, Upstream, whose};

pub(super) fn check(testimonies: &[Testimony], upstream: &[Upstream], findings: &mut Vec<Finding>) {
    for second in testimonies {
        let Some(id) = &second.record.errand.follows else { continue };
        let Some(first) = testimonies.iter().find(|first| first.record.errand.id == *id) else { continue };
        let mut report = |detail: String| {
            let whose = format!("{} behind {}", whose(&second.record), whose(&first.record));
            findings.push(Finding { fault: Fault::Reordered, whose, detail });
        };
        let place = |record: &Record| upstream.iter().position(|known| known.words == record.errand.words);
        if let (Some(earlier), Some(later)) = (place(&first.record), place(&second.record))
            && earlier > later
        {
            report("the agent got the second message first".to_owned());
        }
        if let (Some(end), Some(begin)) = (ended_at(first), began_at(second))
            && begin < end
        {
            report(format!("it began at {}, before the end of the first at {}", begin.0, end.0));
        }
    }
}

pub(super) fn ended_at(testimony: &Testimony) -> Option<Timestamp> {
    at(testimony, TaskState::is_terminal)
}

pub(super) fn began_at(testimony: &Testimony) -> Option<Timestamp> {
    at(testimony, |state| state == TaskState::Working)
}

/// When the log first tells a state like this.
fn at(testimony: &Testimony, is_it: impl Fn(TaskState) -> bool) -> Option<Timestamp> {
    let speaker: Speaker = testimony.record.errand.speaker;
    testimony.log.iter().flatten().find_map(|frame| {
        let status = match speaker.event(&frame.json).ok()? {
            StreamEvent::Task(task) => task.status,
            StreamEvent::Status { update, .. } => update.status,
            StreamEvent::Message(_) | StreamEvent::Artifact { .. } => return None,
        };
        is_it(status.state).then_some(status.at)
    })
}
