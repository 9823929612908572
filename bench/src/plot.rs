//! A figure as horizontal bars of ratios: each peer's median relative to its base, on a logarithmic axis.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figure::Figure;

const WIDTH: u32 = 900;
const BAR: u32 = 30;
const LEFT: i32 = 260;

/// Draws `figure` into `file`.
pub fn draw(figure: &Figure, file: &Path) -> Result<(), String> {
    try_draw(figure, file).map_err(|error| format!("cannot draw {}: {error}", file.display()))
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
