//! From a report of the agent to all readers of the task: fold, append in memory, wake, and the shared frame.

use std::sync::Arc;

use longshore_engine::port::SystemClock;
use longshore_engine::{EncodedForm, Engine, EngineConfig, EngineParts, TaskReader, Tasks};
use longshore_model::{
    AgentEvent, ArtifactId, BlockKind, BlockRef, OutputModes, Principal, SendConfig, SendMessage,
    SendOptions, TaskEvent,
};
use longshore_wire::v1::encode::{self, View};

use super::agent::ManualAgent;
use super::events::{DELTA, message};
use super::{Work, runtime};

const DELTAS: usize = 10;

pub(super) fn work(readers: usize) -> Work {
    let runtime = runtime();
    let (agent, reports) = ManualAgent::new();
    let (engine, mut open) = runtime.block_on(async {
        let engine = Engine::new(EngineParts {
            store: Arc::new(longshore_store::memory()),
            agent: Arc::new(agent),
            control: None,
            clock: Arc::new(SystemClock),
            tasks: Tasks::new(),
            metrics: Arc::default(),
            config: EngineConfig::default(),
        });
        let caller = Principal::new("bench");
        let command = SendMessage {
            message: message(0),
            config: SendConfig::default(),
            metadata: None,
            options: SendOptions::default(),
            may_claim: false,
            trace: None,
        };
        let sent = engine.send(&caller, command).await.expect("cannot send a message");
        let mut open = vec![sent.reader];
        while open.len() < readers {
            let subscription = engine.subscribe(&caller, &sent.task, None).await.expect("cannot subscribe");
            open.push(subscription.reader);
        }
        (engine, open)
    });
    let block = BlockRef {
        id: ArtifactId::parse("prt_bench").expect("letters are an id"),
        kind: BlockKind::Text,
        message: None,
    };
    let items = u64::try_from(DELTAS * readers).unwrap_or_default();
    Work::new(items, move || {
        let _kept = &engine;
        runtime.block_on(async {
            for _ in 0..DELTAS {
                let report = AgentEvent::Text { block: block.clone(), text: DELTA.to_owned() };
                reports.send(report).await.expect("the engine listens");
            }
            let mut deltas = 0;
            for reader in &mut open {
                deltas += read(reader, DELTAS * DELTA.len()).await / DELTA.len();
            }
            u64::try_from(deltas).unwrap_or_default()
        })
    })
}

/// Reads so many bytes of text, and encodes or reuses the frame of each event.
async fn read(reader: &mut TaskReader, bytes: usize) -> usize {
    let (mut text, mut framed) = (0, 0);
    while text < bytes {
        let Ok(Some(entries)) = reader.next().await else { return text };
        for logged in entries {
            let event = &logged.entry.event;
            if let TaskEvent::Artifact(_) = event {
                text += event.weight();
            }
            let form = EncodedForm(encode::frame_form(event, View::default()).into());
            let frame = logged.encoded(form, |entry| {
                let (task, context) = (reader.task_id(), reader.context_id());
                let output = OutputModes::default();
                encode::stream_entry(task, context, entry, View::default(), &output).unwrap_or_default()
            });
            framed += frame.len();
        }
    }
    std::hint::black_box(framed);
    text
}
