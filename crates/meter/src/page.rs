//! The page that a scrape gets, in the Prometheus text format 0.0.4.

use std::fmt::{self, Write as _};

/// The media type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric with all its series, as the page declares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// The name that dashboards and alerts use. A name never changes; it can only be removed.
    pub name: &'static str,
    /// One sentence for a reader who does not know the name.
    pub help: &'static str,
    /// The kind, labels and bounds of its series.
    pub schema: MetricSchema,
}

/// The kind, labels and bounds of a metric's series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricSchema {
    /// How Prometheus treats its numbers.
    pub kind: Kind,
    /// The outermost label, if there is one.
    pub labels: Option<&'static Labels>,
    /// The inclusive upper bounds of a histogram's buckets, as they are held: nanoseconds, or a number of things.
    pub bounds: &'static [u64],
}

/// The kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often a value had which size.
    Histogram,
}

/// A label, its values, and the label nested in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Labels {
    /// Its name.
    pub name: &'static str,
    /// All its values. Empty if they are only known at run time.
    pub values: &'static [&'static str],
    /// The next label.
    pub inner: Option<&'static Self>,
}

impl MetricSchema {
    pub(crate) const fn of(kind: Kind) -> Self {
        Self { kind, labels: None, bounds: &[] }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// A metric that can be written on the page.
pub(crate) trait Metric {
    const SCHEMA: MetricSchema;

    /// Writes its samples.
    fn write(&self, page: &mut Page<'_>);
}

/// The page while it is being written.
pub(crate) struct Page<'a> {
    text: &'a mut String,
    name: &'static str,
    /// The labels of the current series, each followed by a comma.
    labels: String,
}

impl<'a> Page<'a> {
    pub(crate) fn new(text: &'a mut String) -> Self {
        Self { text, name: "", labels: String::new() }
    }

    /// Writes a metric: HELP, TYPE, and its samples.
    pub(crate) fn family<M: Metric>(&mut self, family: &Family, metric: &M) {
        self.name = family.name;
        self.text.push_str("# HELP ");
        self.text.push_str(family.name);
        self.text.push(' ');
        escape(self.text, family.help, false);
        self.put(format_args!("\n# TYPE {} {}\n", family.name, family.schema.kind));
        metric.write(self);
    }

    /// Calls `write` for series that have this label too.
    pub(crate) fn labelled(&mut self, name: &str, value: &str, write: impl FnOnce(&mut Self)) {
        let outer = self.labels.len();
        self.labels.push_str(name);
        self.labels.push_str("=\"");
        escape(&mut self.labels, value, true);
        self.labels.push_str("\",");
        write(self);
        self.labels.truncate(outer);
    }

    /// Writes one line. `suffix` is what a histogram adds to the name.
    pub(crate) fn sample(&mut self, suffix: &str, value: impl fmt::Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        if let Some(labels) = self.labels.strip_suffix(',') {
            self.text.push('{');
            self.text.push_str(labels);
            self.text.push('}');
        }
        self.put(format_args!(" {value}\n"));
    }

    fn put(&mut self, words: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(words);
    }
}

/// Escapes backslashes and line breaks, which would end a help text, and in label values also quotation marks.
fn escape(text: &mut String, words: &str, quoted: bool) {
    for letter in words.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quoted => text.push_str("\\\""),
            _ => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Counter;

    #[test]
    fn a_help_text_is_escaped_to_one_line() {
        let counter = Counter::default();
        counter.add(3);
        let family = Family {
            name: "a_total",
            help: "A \"word\",\nC:\\temp and ü.",
            schema: MetricSchema::of(Kind::Counter),
        };
        let mut text = String::new();
        Page::new(&mut text).family(&family, &counter);
        let page = "# HELP a_total A \"word\",\\nC:\\\\temp and ü.\n# TYPE a_total counter\na_total 3\n";
        assert_eq!(text, page);
    }

    #[test]
    fn a_label_value_is_escaped() {
        let mut text = String::new();
        let mut page = Page::new(&mut text);
        page.name = "a";
        page.labelled("of", "x\"} 1\\\n", |page| {
            page.labelled("le", "0.5", |page| page.sample("_bucket", 1));
            page.sample("_count", 2);
        });
        page.sample("", -3);
        let lines =
            "a_bucket{of=\"x\\\"} 1\\\\\\n\",le=\"0.5\"} 1\na_count{of=\"x\\\"} 1\\\\\\n\"} 2\na -3\n";
        assert_eq!(text, lines);
    }
}
