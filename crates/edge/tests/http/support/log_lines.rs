//! Captures the log of a test: all lines of the gateway, and warnings of libraries.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// The log lines of this thread, on which the whole test runs.
pub(crate) struct LogLines {
    written: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl LogLines {
    pub(crate) fn begin() -> Self {
        let written = Arc::<Mutex<Vec<String>>>::default();
        let guard = tracing::subscriber::set_default(Writer {
            lines: Arc::clone(&written),
            spans: Mutex::default(),
            entered: Mutex::default(),
        });
        Self { written, _guard: guard }
    }

    /// The lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.written.lock().unwrap())
    }
}

/// The line of an event ends with its spans, the innermost first.
struct Writer {
    lines: Arc<Mutex<Vec<String>>>,
    /// The line of each span.
    spans: Mutex<Vec<String>>,
    /// The numbers of the entered spans.
    entered: Mutex<Vec<u64>>,
}

impl Writer {
    fn push(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

fn written(metadata: &Metadata<'_>, record: impl FnOnce(&mut Fields)) -> String {
    let mut fields = Fields(format!("{} {}", metadata.target(), metadata.name()));
    record(&mut fields);
    fields.0
}

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("longshore") || *metadata.level() <= Level::WARN
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let line = written(span.metadata(), |fields| span.record(fields));
        self.push(line.clone());
        let mut spans = self.spans.lock().unwrap();
        spans.push(line);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.push(fields.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = written(event.metadata(), |fields| event.record(fields));
        let (spans, entered) = (self.spans.lock().unwrap(), self.entered.lock().unwrap());
        for number in entered.iter().rev() {
            let index = usize::try_from(*number).unwrap() - 1;
            write!(line, " in [{}]", spans[index]).unwrap();
        }
        self.push(format!("{} {line}", event.metadata().level()));
    }

    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut entered = self.entered.lock().unwrap();
        let last = entered.iter().rposition(|number| *number == span.into_u64());
        last.map(|index| entered.remove(index));
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {field}={value}").unwrap();
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}
