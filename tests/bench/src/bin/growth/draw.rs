//! The growth as a plot, and in words.

use std::fmt::Write as _;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::series::{self, Point, Series};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A line is straight up to here: a parabola has 2.
const MOST_EXPONENT: f64 = 1.1;
const SIZE: (u32, u32) = (960, 1020);
const PANELS: (usize, usize) = (3, 2);

/// The colours on a background. It is drawn, too, so that the file can be read anywhere.
struct Colours {
    file: &'static str,
    paper: RGBColor,
    ink: RGBColor,
    ours: RGBColor,
    theirs: RGBColor,
}

const LIGHT: Colours = Colours {
    file: "growth-light.svg",
    paper: RGBColor(255, 255, 255),
    ink: RGBColor(31, 35, 40),
    ours: RGBColor(9, 105, 218),
    theirs: RGBColor(188, 76, 0),
};
const DARK: Colours = Colours {
    file: "growth-dark.svg",
    paper: RGBColor(13, 17, 23),
    ink: RGBColor(230, 237, 243),
    ours: RGBColor(88, 166, 255),
    theirs: RGBColor(240, 136, 62),
};

/// Draws the CSV file's series into the folder, on a light and on a dark background, and prints them as a table.
pub(crate) fn draw(csv: &Path, folder: &Path) -> Result {
    let csv = std::fs::read_to_string(csv)?;
    let mut all = Vec::new();
    for one in &series::ALL {
        let points = series::points(&csv, one.name).ok_or_else(|| format!("no points of the series {}", one.name))?;
        all.push((one, points));
    }
    for colours in [&LIGHT, &DARK] {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&colours.paper)?;
            for (area, (series, points)) in root.margin(8, 8, 8, 8).split_evenly(PANELS).iter().zip(&all) {
                panel(area, series, points, colours)?;
            }
            root.present()?;
        }
        std::fs::write(folder.join(colours.file), svg)?;
    }
    print!("{}", table(&all));
    for (series, points) in &all {
        let ours: Vec<_> = points.iter().map(|point| (number(point.size), point.ours)).collect();
        if let Some(exponent) = exponent(&ours).filter(|exponent| *exponent > MOST_EXPONENT) {
            return Err(format!("{}: not a straight line, its exponent is {exponent:.2}", series.title).into());
        }
    }
    Ok(())
}

fn panel(area: &Area<'_>, series: &Series, points: &[Point], colours: &Colours) -> Result {
    let text = |size| ("sans-serif", size).into_font().color(&colours.ink);
    let all = || points.iter().flat_map(|point| [Some(point.ours), point.theirs]).flatten();
    let (least, most) = all().fold((f64::INFINITY, 0_f64), |(least, most), it| (least.min(it), most.max(it)));
    let ends = points.first().zip(points.last()).map(|(first, last)| (number(first.size), number(last.size)));
    let (left, right) = ends.ok_or("no points")?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(series.title, text(15))
        .x_label_area_size(38)
        .y_label_area_size(62)
        .build_cartesian_2d((left * 0.8..right * 1.25).log_scale(), (least * 0.5..most * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .axis_style(colours.ink)
        .bold_line_style(colours.ink.mix(0.18))
        .light_line_style(TRANSPARENT)
        .label_style(text(12))
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y))
        .x_desc(series.unit)
        .y_desc("instructions")
        .draw()?;
    let ours: Vec<_> = points.iter().map(|point| (number(point.size), point.ours)).collect();
    let theirs: Vec<_> = points.iter().filter_map(|point| Some((number(point.size), point.theirs?))).collect();
    for (name, points, colour) in [("serde_json", theirs, colours.theirs), ("rigline", ours, colours.ours)] {
        if points.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(colours.paper.mix(0.8))
        .label_font(text(12))
        .draw()?;
    Ok(())
}

/// The cost of one more at the end of the line, and the exponent of the growth: 1 is a straight line, 2 a parabola.
fn table(series: &[(&Series, Vec<Point>)]) -> String {
    let mut table = String::from(
        "| what grows | from | to | rigline, instructions for one more | serde_json | rigline, exponent | serde_json |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (series, points) in series {
        let ours: Vec<_> = points.iter().map(|point| (number(point.size), point.ours)).collect();
        let theirs: Vec<_> = points.iter().filter_map(|point| Some((number(point.size), point.theirs?))).collect();
        let ends = points.first().zip(points.last()).map(|(first, last)| (first.size, last.size));
        let (from, to) = ends.unwrap_or_default();
        let cell = |value: Option<f64>, digits| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        let _ = writeln!(
            table,
            "| {}, {} | {from} | {to} | {} | {} | {} | {} |",
            series.title,
            series.unit,
            cell(one_more(&ours), 1),
            cell(one_more(&theirs), 1),
            cell(exponent(&ours), 2),
            cell(exponent(&theirs), 2),
        );
    }
    table
}

/// The slope between the first point and the last.
fn one_more(points: &[(f64, f64)]) -> Option<f64> {
    let ((x, y), (to_x, to_y)) = points.first().zip(points.last())?;
    (to_x > x).then(|| (to_y - y) / (to_x - x))
}

/// The exponent b in `y - y0 = a (x - x0)^b`, by least squares of the logarithms: what is the same for all sizes does not
/// bend the line.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let (&(x0, y0), rest) = points.split_first()?;
    let logs: Vec<_> = rest.iter().filter(|(_, y)| *y > y0).map(|(x, y)| ((x - x0).ln(), (y - y0).ln())).collect();
    let count = number(logs.len());
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>();
    let (x, y) = (sum(&|it| it.0) / count, sum(&|it| it.1) / count);
    let (xy, xx) = (sum(&|it| (it.0 - x) * (it.1 - y)), sum(&|it| (it.0 - x).powi(2)));
    (logs.len() > 1).then(|| xy / xx)
}

#[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn number(size: usize) -> f64 {
    size as f64
}

/// 1, 10, 1k, 100M.
fn short(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{}{name}", (value / unit * 100.0).round() / 100.0),
        None => format!("{}", (value * 100.0).round() / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::exponent;

    #[test]
    fn an_exponent_is_of_what_grows() {
        let of = |grow: fn(f64) -> f64| {
            let points: Vec<_> = [1.0, 10.0, 100.0, 1000.0].map(|x| (x, grow(x))).into();
            format!("{:.2}", exponent(&points).unwrap_or_default())
        };
        assert_eq!([of(|x| 5000.0 + 3.0 * x), of(|x| 7.0 * x)], ["1.00", "1.00"]);
        assert_eq!(of(|x| 5000.0 + x * x - 2.0 * x), "2.00");
    }
}
