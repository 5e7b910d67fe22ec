//! Events as frames of a stream.

use longshore_model::{Entry, Epoch, OutputModes, Seq};
use longshore_wire::v1;
use longshore_wire::v1::encode::View;
use longshore_wire::v03::Dialect;
use longshore_wire::v03::encode::{Step, Stream};

use super::Work;
use super::events::{context_id, delta, task_id};

const FRAMES: u64 = 1000;

fn entry() -> Entry {
    Entry { seq: Seq(1234), epoch: Epoch(7), event: delta() }
}

pub(super) fn v1() -> Work {
    let (entry, task, context) = (entry(), task_id(0), context_id(0));
    Work::new(FRAMES, move || {
        let encode = |_| {
            let frame =
                v1::encode::stream_entry(&task, &context, &entry, View::default(), &OutputModes::default());
            u64::from(frame.is_some_and(|frame| !frame.is_empty()))
        };
        (0..FRAMES).map(encode).sum()
    })
}

pub(super) fn v03() -> Work {
    let (entry, task, context) = (entry(), task_id(0), context_id(0));
    let mut stream = Stream::from_start(View::default(), Dialect::Rpc);
    Work::new(FRAMES, move || {
        let mut encode = |_| {
            let output = OutputModes::default();
            let Step::Frame(frame) = stream.step(&entry.event, &output) else { return 0 };
            u64::from(!frame.encode(&task, &context, &entry, &output).is_empty())
        };
        (0..FRAMES).map(&mut encode).sum()
    })
}
