//! Plots as SVG, for a page. The page's style sheet replaces these colours, which it finds by their
//! numbers.

use plotters::prelude::*;

/// The colour of axes and texts.
const INK: RGBColor = RGBColor(1, 1, 1);
const GOOD: RGBColor = RGBColor(31, 138, 76);
const BAD: RGBColor = RGBColor(204, 51, 51);
const LINE: RGBColor = RGBColor(58, 110, 190);
const SIZE: (u32, u32) = (480, 180);

/// A value, and whether it is bad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) is_bad: bool,
}

/// Shares in percent, in their order.
pub(super) fn shares(points: &[Point], axis: &str) -> Option<String> {
    let mut svg = String::new();
    draw(&mut svg, points, (-4.0, 104.0), (None, None), axis).ok().filter(|()| !points.is_empty())?;
    Some(svg)
}

/// Values in their order, between their limits. `None` if there is nothing to show.
pub(super) fn plot(points: &[Point], low: Option<f64>, high: Option<f64>, axis: &str) -> Option<String> {
    let values = points.iter().map(|point| point.value).chain(low).chain(high).filter(|value| value.is_finite());
    let (least, most) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)));
    // So far apart that their distance is not a number.
    let span = most - least;
    if points.is_empty() || !span.is_finite() {
        return None;
    }
    let margin = if span > 0.0 { span * 0.1 } else { (least.abs() * 0.01).max(1e-9) };
    let (bottom, top) = (least - margin, most + margin);
    let mut svg = String::new();
    draw(&mut svg, points, (bottom, top), (low, high), axis).ok()?;
    Some(svg)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(
    svg: &mut String,
    points: &[Point],
    (bottom, top): (f64, f64),
    (low, high): (Option<f64>, Option<f64>),
    axis: &str,
) -> Drawn {
    #[allow(clippy::cast_precision_loss, reason = "a few thousand points at most")]
    let right = points.len() as f64 + 0.5;
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.5..right, bottom..top)?;
    let digits = digits(top - bottom);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(INK)
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.15))
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_labels(points.len().clamp(2, 12))
        .x_label_formatter(&|x| if (x - x.round()).abs() < 0.01 { format!("{x:.0}") } else { String::new() })
        .y_labels(5)
        .y_label_formatter(&|y| format!("{y:.digits$}"))
        .x_desc(axis)
        .draw()?;
    let band = [(0.5, low.unwrap_or(bottom)), (right, high.unwrap_or(top))];
    if low.is_some() || high.is_some() {
        chart.draw_series([Rectangle::new(band, GOOD.mix(0.10).filled())])?;
    }
    for limit in [low, high].into_iter().flatten() {
        chart.draw_series(LineSeries::new([(0.5, limit), (right, limit)], GOOD.stroke_width(1)))?;
    }
    #[allow(clippy::cast_precision_loss, reason = "a few thousand points at most")]
    let at = |place: usize| place as f64 + 1.0;
    let line = points.iter().enumerate().map(|(place, point)| (at(place), point.value));
    chart.draw_series(LineSeries::new(line, LINE.stroke_width(1)))?;
    for (place, point) in points.iter().enumerate() {
        let colour = if point.is_bad { BAD } else { LINE };
        chart.draw_series([Circle::new(
            (at(place), point.value),
            if point.is_bad { 5 } else { 3 },
            colour.filled(),
        )])?;
    }
    root.present()?;
    Ok(())
}

/// The number of decimals that distinguish the labels of an axis of this length.
fn digits(span: f64) -> usize {
    let digits = (1.0 - (span / 5.0).log10()).ceil();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 12")]
    let digits = digits.clamp(0.0, 12.0) as usize;
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_values_give_a_plot_or_none() {
        let point = |value| Point { value, is_bad: false };
        for (values, low, high, is_drawn) in [
            (&[3.3, 3.31, 3.29][..], Some(3.1), Some(3.5), true),
            (&[0.0], None, None, true),
            (&[1e300, 1e300], None, Some(1e300), true),
            (&[1e-300], Some(0.0), None, true),
            (&[-1e308, 1e308], None, None, false),
            (&[], Some(1.0), Some(2.0), false),
        ] {
            let points: Vec<Point> = values.iter().copied().map(point).collect();
            let svg = plot(&points, low, high, "trial");
            assert_eq!(svg.is_some(), is_drawn, "{values:?}");
            assert!(svg.is_none_or(|svg| svg.starts_with("<svg") && !svg.contains("NaN")), "{values:?}");
        }
    }
}
