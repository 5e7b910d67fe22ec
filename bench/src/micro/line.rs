//! Lines of OpenCode's event stream to reports.

use longshore_agent_opencode::measure::Reading;

use super::Work;
use super::events::DELTA;

const SESSION: &str = "ses_e22b7777effedYLj9HdhoixeFA";
const PROMPT: &str = "msg_1dd48888c001jqStNGKmZyZoz7";
const ANSWER: &str = "msg_1dd48889c0017P9Vq1VM4RTuCL";
const TEXT: &str = "prt_1dd488911001LcPivcwdTIiwdE";
const TOOL: &str = "prt_1dd4889df001d24qLgN7qjaey0";
const DELTAS: u64 = 1000;
const OUTPUTS: u64 = 50;

fn event(kind: &str, properties: &str) -> String {
    format!(
        "data: {{\"id\":\"evt_1dd4889140014DlM1iQGzjO8iP\",\"type\":\"{kind}\",\"properties\":{{\"sessionID\":\"{SESSION}\",{properties}}}}}\n\n"
    )
}

/// A turn that has come so far that it streams.
fn reading() -> Reading {
    let user = format!(
        r#""info":{{"id":"{PROMPT}","role":"user","sessionID":"{SESSION}","time":{{"created":1794713880716}},"agent":"build","model":{{"providerID":"scripted","modelID":"scripted"}}}}"#
    );
    let answer = format!(
        r#""info":{{"id":"{ANSWER}","parentID":"{PROMPT}","role":"assistant","mode":"build","agent":"build","path":{{"cwd":"/workspace","root":"/workspace"}},"cost":0,"tokens":{{"input":0,"output":0,"reasoning":0,"cache":{{"read":0,"write":0}}}},"modelID":"scripted","providerID":"scripted","time":{{"created":1794713880732}},"sessionID":"{SESSION}"}}"#
    );
    let part = format!(
        r#""part":{{"id":"{TEXT}","messageID":"{ANSWER}","sessionID":"{SESSION}","type":"text","text":"","time":{{"start":1794713880849}}}},"time":1794713880849"#
    );
    let mut reading = Reading::new(SESSION, PROMPT);
    for event in [
        event("message.updated", &user),
        event("message.updated", &answer),
        event("message.part.updated", &part),
    ] {
        reading.push(event.as_bytes());
    }
    reading
}

/// Reads the same lines again and again, in a turn of its own each time: what it keeps does not grow without end.
fn work(lines: String, items: u64) -> Work {
    Work::new(items, move || u64::try_from(reading().push(lines.as_bytes())).unwrap_or_default())
}

pub(super) fn deltas() -> Work {
    let delta = event(
        "message.part.delta",
        &format!(r#""messageID":"{ANSWER}","partID":"{TEXT}","field":"text","delta":"{DELTA}""#),
    );
    work(delta.repeat(usize::try_from(DELTAS).unwrap_or_default()), DELTAS)
}

pub(super) fn tool_outputs() -> Work {
    let mut lines = String::new();
    for number in 0..OUTPUTS {
        let output = format!("{number:06} a line of what a command says\\n").repeat(4096 / 40);
        lines.push_str(&event(
            "message.part.updated",
            &format!(
                r#""part":{{"id":"{TOOL}","messageID":"{ANSWER}","sessionID":"{SESSION}","type":"tool","tool":"bash","callID":"call_1","state":{{"status":"running","input":{{"command":"make"}},"time":{{"start":1794713880849}},"metadata":{{"output":"{output}"}}}}}},"time":1794713880849"#
            ),
        ));
    }
    work(lines, OUTPUTS)
}
