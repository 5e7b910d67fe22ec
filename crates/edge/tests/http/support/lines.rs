//! What is written to the log while a test runs: of the gateway everything, of libraries what a gateway lets through.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines of this thread, on which all of a test runs.
pub(crate) struct Lines {
    written: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Lines {
    pub(crate) fn begin() -> Self {
        let written = Arc::<Mutex<Vec<String>>>::default();
        let guard = tracing::subscriber::set_default(Writer(Arc::clone(&written)));
        Self { written, _guard: guard }
    }

    /// What was written since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.written.lock().unwrap())
    }
}

struct Writer(Arc<Mutex<Vec<String>>>);

impl Writer {
    fn write(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Fields)) {
        let mut fields = Fields(format!("{} {}", metadata.target(), metadata.name()));
        record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
}

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("longshore") || *metadata.level() <= Level::WARN
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.write(span.metadata(), |fields| span.record(fields));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.write(event.metadata(), |fields| event.record(fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
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
