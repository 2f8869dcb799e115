//! Results as a plot: throughput and CPU over the first setting, a line for each of the others.

use plotters::prelude::*;

use crate::Combination;
use crate::table::median;

/// The plot as SVG text.
pub(crate) fn svg(title: &str, keys: &[&str], combinations: &[Combination]) -> Result<String, String> {
    let mut out = String::new();
    draw(&mut out, title, keys, combinations).map_err(|e| format!("drawing the plot: {e}"))?;
    Ok(out)
}

fn draw(out: &mut String, title: &str, keys: &[&str], combinations: &[Combination]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(out, (960, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let halves = area.split_evenly((1, 2));
    // Positions on the x axis: the values of the first setting, evenly spaced.
    let mut labels: Vec<String> = Vec::new();
    for combination in combinations {
        let label = combination.values.first().cloned().unwrap_or_else(|| title.to_string());
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let mut series: Vec<(String, Vec<(f64, &Combination)>)> = Vec::new();
    for combination in combinations {
        let x = combination.values.first().and_then(|v| labels.iter().position(|l| l == v)).unwrap_or(0) as f64;
        let name = keys.iter().zip(&combination.values).skip(1).map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ");
        match series.iter_mut().find(|(n, _)| *n == name) {
            Some((_, points)) => points.push((x, combination)),
            None => series.push((name, vec![(x, combination)])),
        }
    }
    let figures: [(&str, fn(&Combination) -> f64); 2] = [
        ("million rows a second", |c| median(&c.runs, |m| m.rows_per_s) / 1e6),
        ("CPU seconds", |c| median(&c.runs, |m| m.user_s + m.sys_s)),
    ];
    for (half, (caption, figure)) in halves.iter().zip(figures) {
        let highest = combinations.iter().map(figure).fold(0.0, f64::max).max(1e-9) * 1.1;
        let mut chart = ChartBuilder::on(half)
            .caption(format!("{title}: {caption}"), ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.3..(labels.len() as f64 - 0.7).max(0.3), 0.0..highest)?;
        chart
            .configure_mesh()
            .x_labels(labels.len())
            .x_label_formatter(&|x| {
                let at = x.round();
                if (x - at).abs() < 0.01 && at >= 0.0 { labels.get(at as usize).cloned().unwrap_or_default() } else { String::new() }
            })
            .x_desc(keys.first().copied().unwrap_or(""))
            .draw()?;
        for (i, (name, points)) in series.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            let line: Vec<(f64, f64)> = points.iter().map(|(x, c)| (*x, figure(c))).collect();
            let drawn = chart.draw_series(LineSeries::new(line.clone(), color.stroke_width(2)))?;
            if !name.is_empty() {
                drawn.label(name.as_str()).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
            }
            chart.draw_series(line.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
        }
        if series.len() > 1 {
            chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
        }
    }
    area.present()?;
    Ok(())
}
