//! Plots with both axes logarithmic, as SVG.

use std::fmt::Write as _;

use crate::number::short;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) across: &'a str,
    pub(super) up: &'a str,
    pub(super) lines: Vec<Curve<'a>>,
}

pub(super) struct Curve<'a> {
    pub(super) name: &'a str,
    pub(super) color: &'a str,
    pub(super) dashed: bool,
    /// Points that are not above zero are left out: a logarithmic axis cannot show them.
    pub(super) points: Vec<(f64, f64)>,
}

/// An axis from one power of ten to another.
#[derive(Clone, Copy)]
struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let logs = values.map(f64::log10);
        let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log), high.max(log)));
        let (from, to) = if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil()) };
        Self { from, to: if to > from { to } else { from + 1.0 }, start, end }
    }

    fn position(self, value: f64) -> f64 {
        let share = (value.log10() - self.from) / (self.to - self.from);
        self.start + share * (self.end - self.start)
    }

    /// Every power of ten.
    fn marks(self) -> impl Iterator<Item = f64> {
        let mut power = self.from;
        std::iter::from_fn(move || {
            let mark = (power <= self.to + 0.5).then(|| 10_f64.powf(power));
            power += 1.0;
            mark
        })
    }
}

pub(super) fn draw(plot: &Plot<'_>) -> String {
    let points = || plot.lines.iter().flat_map(|line| &line.points).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let across = Axis::over(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let up = Axis::over(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut text = |x: f64, y: f64, anchor: &str, more: &str, text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{}</text>",
            escaped(text)
        );
    };
    text(WIDTH / 2.0, 18.0, "middle", " font-weight=\"bold\"", plot.title);
    text(f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 12.0, "middle", "", plot.across);
    let (x, y) = (16.0, f64::midpoint(TOP, HEIGHT - BOTTOM));
    text(x, y, "middle", &format!(" transform=\"rotate(-90 {x:.1} {y:.1})\""), plot.up);
    for mark in across.marks() {
        text(across.position(mark), HEIGHT - BOTTOM + 18.0, "middle", "", &short(mark));
    }
    for mark in up.marks() {
        text(LEFT - 6.0, up.position(mark) + 4.0, "end", "", &short(mark));
    }
    for (number, line) in (0_u8..).zip(&plot.lines) {
        let y = TOP + 14.0 + f64::from(number) * 16.0;
        text(LEFT + 36.0, y, "start", "", line.name);
    }
    for mark in across.marks() {
        rule(&mut svg, (across.position(mark), TOP), (across.position(mark), HEIGHT - BOTTOM));
    }
    for mark in up.marks() {
        rule(&mut svg, (LEFT, up.position(mark)), (WIDTH - RIGHT, up.position(mark)));
    }
    for (number, line) in (0_u8..).zip(&plot.lines) {
        curve(&mut svg, line, TOP + 10.0 + f64::from(number) * 16.0, across, up);
    }
    svg.push_str("</svg>\n");
    svg
}

fn rule(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ =
        writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>");
}

fn curve(svg: &mut String, line: &Curve<'_>, key_y: f64, across: Axis, up: Axis) {
    let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
    let color = line.color;
    let key = (LEFT + 8.0, LEFT + 30.0);
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{key_y:.1}\" x2=\"{:.1}\" y2=\"{key_y:.1}\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>",
        key.0, key.1
    );
    let shown = || line.points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let positions: Vec<_> =
        shown().map(|(x, y)| format!("{:.1},{:.1}", across.position(*x), up.position(*y))).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>",
        positions.join(" ")
    );
    for (x, y) in shown() {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"><title>{}: {}, {}</title></circle>",
            across.position(*x),
            up.position(*y),
            escaped(line.name),
            short(*x),
            short(*y)
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_reaches_from_one_power_of_ten_to_another() {
        let axis = Axis::over([3.0, 470.0].into_iter(), 0.0, 300.0);
        assert_eq!(axis.marks().collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((axis.position(1.0)).abs() < 1e-9 && (axis.position(1000.0) - 300.0).abs() < 1e-9);
        let flat = Axis::over([10.0].into_iter(), 0.0, 1.0);
        assert_eq!(flat.marks().collect::<Vec<_>>(), [10.0, 100.0]);
        assert_eq!(Axis::over(std::iter::empty(), 0.0, 1.0).marks().count(), 2);
    }
}
