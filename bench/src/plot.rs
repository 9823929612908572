//! A figure as horizontal bars of ratios: each peer's median relative to its base, on a logarithmic axis. Or as a
//! curve of medians, on two of them.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figure::{Base, Figure};

const WIDTH: u32 = 900;
const BAR: u32 = 30;
const LEFT: i32 = 260;

/// Draws `figure` into `file`.
pub fn draw(figure: &Figure, file: &Path) -> Result<(), String> {
    let drawn = match figure.base {
        Base::Curve(at) => draw_curve(figure, at, file),
        _ => try_draw(figure, file),
    };
    drawn.map_err(|error| format!("cannot draw {}: {error}", file.display()))
}

fn try_draw(figure: &Figure, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let rows = u32::try_from(figure.series.len())?;
    let root = SVGBackend::new(file, (WIDTH, BAR * rows + 80)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(figure.title.clone(), (20, 15), ("sans-serif", 22)))?;
    let scale = Scale::new(figure);
    root.draw(&PathElement::new([(scale.x(1.0), 45), (scale.x(1.0), (BAR * rows) as i32 + 55)], BLACK.mix(0.4)))?;
    for index in 0..figure.series.len() {
        draw_bar(&root, figure, index, &scale)?;
    }
    let caption = "relative to the line at 1, logarithmic; medians".to_owned();
    root.draw(&Text::new(caption, (20, (BAR * rows) as i32 + 60), ("sans-serif", 14)))?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_bar(root: &Area, figure: &Figure, index: usize, scale: &Scale) -> Result<(), Box<dyn std::error::Error>> {
    let series = &figure.series[index];
    let ratio = figure.ratio(index);
    let top = 50 + (BAR as usize * index) as i32;
    let middle = top + BAR as i32 / 2 - 3;
    let label = ("sans-serif", 16).into_font().color(&BLACK).pos(Pos::new(HPos::Right, VPos::Center));
    root.draw(&Text::new(series.name.clone(), (LEFT - 10, middle), label))?;
    let ours =
        series.name.contains("speculator") || series.name.ends_with("inside") || series.name.contains("checkpoint");
    let colour = if ours { RGBColor(31, 119, 180) } else { RGBColor(170, 170, 170) };
    let end = scale.x(ratio).max(LEFT + 2);
    root.draw(&Rectangle::new([(LEFT, top + 4), (end, top + BAR as i32 - 8)], colour.filled()))?;
    let value = ("sans-serif", 16).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    let text = format!("{ratio:.2} x  ({:.4} {})", series.median(), figure.unit);
    root.draw(&Text::new(text, (end + 6, middle), value))?;
    Ok(())
}

/// From ratio to horizontal position.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn new(figure: &Figure) -> Scale {
        let ratios = (0..figure.series.len()).map(|index| figure.ratio(index)).filter(|ratio| *ratio > 0.0);
        let (low, high) = ratios.fold((1.0_f64, 1.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
        Scale { low: (low * 0.5).ln(), high: (high * 1.2).ln() }
    }

    fn x(&self, ratio: f64) -> i32 {
        let room = f64::from(WIDTH as i32 - LEFT - 200);
        LEFT + (room * (ratio.ln() - self.low) / (self.high - self.low)) as i32
    }
}

/// The curve's place in its picture.
const CURVE: (i32, i32, i32, i32) = (120, 60, 860, 400);

/// Medians against what grows, both logarithmic. Points that were not measured are left out.
fn draw_curve(figure: &Figure, at: &[f64], file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(file, (WIDTH, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(format!("{} ({})", figure.title, figure.unit), (20, 15), ("sans-serif", 22)))?;
    let medians = figure.series.iter().map(|series| series.median());
    let points: Vec<(f64, f64)> = at.iter().copied().zip(medians).filter(|(_, median)| *median > 0.0).collect();
    let (left, top, right, bottom) = CURVE;
    let along = Span::of(points.iter().map(|point| point.0), left, right);
    let up = Span::of(points.iter().map(|point| point.1), bottom, top);
    root.draw(&PathElement::new([(left - 10, top), (left - 10, bottom + 10), (right, bottom + 10)], BLACK.mix(0.4)))?;
    let placed: Vec<(i32, i32)> = points.iter().map(|&(x, y)| (along.place(x), up.place(y))).collect();
    root.draw(&PathElement::new(placed.clone(), RGBColor(31, 119, 180).stroke_width(2)))?;
    for (&(x, y), &(value_x, value_y)) in placed.iter().zip(&points) {
        let label = ("sans-serif", 14).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Bottom));
        root.draw(&Circle::new((x, y), 4, RGBColor(31, 119, 180).filled()))?;
        root.draw(&Text::new(told(value_y), (x, y - 8), label.clone()))?;
        root.draw(&Text::new(told(value_x), (x, bottom + 30), label))?;
    }
    root.draw(&Text::new("both axes logarithmic; medians", (20, 435), ("sans-serif", 14)))?;
    root.present()?;
    Ok(())
}

fn told(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// From a value to a place on a logarithmic axis.
struct Span {
    low: f64,
    high: f64,
    from: i32,
    to: i32,
}

impl Span {
    fn of(values: impl Iterator<Item = f64>, from: i32, to: i32) -> Span {
        let fold = values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
        Span { low: fold.0.min(fold.1).ln(), high: fold.1.ln(), from, to }
    }

    fn place(&self, value: f64) -> i32 {
        let part = if self.high > self.low { (value.ln() - self.low) / (self.high - self.low) } else { 0.5 };
        self.from + (part * f64::from(self.to - self.from)) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_logarithmic_and_has_room_for_one_value() {
        let span = Span::of([1.0, 100.0].into_iter(), 0, 200);
        assert_eq!([1.0, 10.0, 100.0].map(|value| span.place(value)), [0, 100, 200]);
        assert_eq!(Span::of([7.0].into_iter(), 0, 10).place(7.0), 5);
    }
}
