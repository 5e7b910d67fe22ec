//! Lines of OpenCode's event stream to reports.

use longshore_agent_opencode::measure::EventPipeline;
use longshore_opencode_shapes::{
    Cost, Event, Message, MessageTime, Model, PartIds, Properties, Tokens, WorkingPath, write_frame,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::Work;
use super::events::DELTA;

const SESSION: &str = "ses_e22b7777effedYLj9HdhoixeFA";
const PROMPT: &str = "msg_1dd48888c001jqStNGKmZyZoz7";
const ANSWER: &str = "msg_1dd48889c0017P9Vq1VM4RTuCL";
const TEXT: &str = "prt_1dd488911001LcPivcwdTIiwdE";
const TOOL: &str = "prt_1dd4889df001d24qLgN7qjaey0";
const MODEL: &str = "scripted";
const NOW: u64 = 1_794_713_880_849;
const DELTAS: u64 = 1000;
const OUTPUTS: u64 = 50;

fn frame<T: Serialize>(kind: &str, properties: Properties<'_, T>) -> Vec<u8> {
    let mut frame = Vec::new();
    let event = Event { id: "evt_1dd4889140014DlM1iQGzjO8iP", kind, properties };
    write_frame(&mut frame, &event).expect("memory can be written");
    frame
}

/// A turn that has begun to stream.
fn reading() -> EventPipeline {
    let user = Message::User {
        id: PROMPT,
        session: SESSION,
        time: MessageTime { created: NOW, completed: None },
        agent: "build",
        model: Model { provider: MODEL, model: MODEL },
        summary: None,
    };
    let answer = Message::Assistant {
        id: ANSWER,
        parent: PROMPT,
        mode: "build",
        agent: "build",
        path: WorkingPath::new("/workspace"),
        cost: Cost::Nothing,
        tokens: Tokens::NONE,
        model: MODEL,
        provider: MODEL,
        time: MessageTime { created: NOW, completed: None },
        session: SESSION,
        finish: None,
        error: None,
    };
    let part = PartIds { id: TEXT, message: ANSWER, session: SESSION }.block("text", "", NOW, None);
    let mut reading = EventPipeline::new(SESSION, PROMPT);
    reading.push(&frame("message.updated", Properties::Info { session: SESSION, info: user }));
    reading.push(&frame("message.updated", Properties::Info { session: SESSION, info: answer }));
    reading.push(&frame("message.part.updated", Properties::Part { session: SESSION, part, time: NOW }));
    reading
}

/// Reads the same lines repeatedly, in a new turn each time, so that the state of the turn does not grow forever.
fn work(lines: Vec<u8>, items: u64) -> Work {
    Work::new(items, move || u64::try_from(reading().push(&lines)).unwrap_or_default())
}

pub(super) fn deltas() -> Work {
    let delta: Properties<'_> =
        Properties::Delta { session: SESSION, message: ANSWER, part: TEXT, field: "text", delta: DELTA };
    let delta = frame("message.part.delta", delta);
    work(delta.repeat(usize::try_from(DELTAS).unwrap_or_default()), DELTAS)
}

pub(super) fn tool_outputs() -> Work {
    let mut lines = Vec::new();
    for number in 0..OUTPUTS {
        let output = format!("{number:06} a line of a command's output\n").repeat(4096 / 40);
        let part: Value = json!({
            "id": TOOL, "messageID": ANSWER, "sessionID": SESSION, "type": "tool", "tool": "bash", "callID": "call_1",
            "state": {
                "status": "running", "input": {"command": "make"}, "time": {"start": NOW}, "metadata": {"output": output},
            },
        });
        lines.extend(frame("message.part.updated", Properties::Part { session: SESSION, part, time: NOW }));
    }
    work(lines, OUTPUTS)
}
