//! The page that a scrape gets: the text format 0.0.4 of Prometheus.

use std::fmt::{self, Write as _};

/// What an answer with the page says about itself.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric with all its series, as the page declares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// As dashboards and alerts ask for it: never changed, only given up.
    pub name: &'static str,
    /// One sentence for whoever meets the name first.
    pub help: &'static str,
    /// What its series look like.
    pub shape: Shape,
}

/// What the series of a metric look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// What is done with its numbers.
    pub kind: Kind,
    /// The outermost label, if there is one.
    pub labels: Option<&'static Labels>,
    /// Of a histogram, the inclusive upper ends of its buckets, as they are held: nanoseconds, or a number of things.
    pub bounds: &'static [u64],
}

/// What is done with the numbers of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often something was how large.
    Histogram,
}

/// A label, all that it can be, and the label inside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Labels {
    /// Its name.
    pub name: &'static str,
    /// All that it can be. None, where it is known at run time only.
    pub values: &'static [&'static str],
    /// The next label.
    pub inner: Option<&'static Self>,
}

impl Shape {
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

/// What can stand on the page.
pub(crate) trait Metric {
    const SHAPE: Shape;

    /// Writes its samples.
    fn write(&self, page: &mut Page<'_>);
}

/// The page while it is written.
pub(crate) struct Page<'a> {
    text: &'a mut String,
    name: &'static str,
    /// The labels of the series that is written, each with a comma behind it.
    labels: String,
}

impl<'a> Page<'a> {
    pub(crate) fn new(text: &'a mut String) -> Self {
        Self { text, name: "", labels: String::new() }
    }

    /// Writes a metric: what it is, and its samples.
    pub(crate) fn family<M: Metric>(&mut self, family: &Family, metric: &M) {
        self.name = family.name;
        self.text.push_str("# HELP ");
        self.text.push_str(family.name);
        self.text.push(' ');
        escape(self.text, family.help, false);
        self.put(format_args!("\n# TYPE {} {}\n", family.name, family.shape.kind));
        metric.write(self);
    }

    /// Has `write` write series that have this label too.
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
        // A string takes everything.
        let _ = self.text.write_fmt(words);
    }
}

/// A backslash and the end of a line would end a help; a quotation mark would end a value too.
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
    fn a_help_is_one_line_and_may_quote() {
        let counter = Counter::default();
        counter.add(3);
        let family =
            Family {
                name: "a_total", help: "A \"word\",\nC:\\temp and ü.", shape: Shape::of(Kind::Counter)
            };
        let mut text = String::new();
        Page::new(&mut text).family(&family, &counter);
        let page = "# HELP a_total A \"word\",\\nC:\\\\temp and ü.\n# TYPE a_total counter\na_total 3\n";
        assert_eq!(text, page);
    }

    #[test]
    fn a_value_of_a_label_ends_where_it_ends() {
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
