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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measured;

    fn combination(values: &[&str], elapsed_s: &[f64]) -> Combination {
        let values = values.iter().map(|v| v.to_string()).collect();
        Combination { values, runs: elapsed_s.iter().map(|s| Measured::of(*s)).collect() }
    }

    /// The texts of a plot, as they stand in it.
    fn texts(svg: &str) -> Vec<&str> {
        svg.split("<text").skip(1).filter_map(|t| Some(t.split_once('>')?.1.split_once("</text>")?.0.trim())).collect()
    }

    /// Where the points of a plot stand, in its own units.
    fn points(svg: &str) -> Vec<(i64, i64)> {
        let value =
            |tag: &str, name: &str| tag.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
        svg.split("<circle").skip(1).map(|tag| (value(tag, "cx").expect("a number"), value(tag, "cy").expect("a number"))).collect()
    }

    #[test]
    fn two_settings_are_an_axis_and_lines() {
        // Rows a second fall as the time rises, CPU seconds rise with it.
        let combinations = [
            combination(&["1", "1"], &[4.0, 3.0, 64.0]),
            combination(&["1", "2"], &[2.0]),
            combination(&["16", "1"], &[2.0]),
            combination(&["16", "2"], &[1.0]),
        ];
        let svg = svg("job", &["block.size", "parallelism"], &combinations).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        let texts = texts(&svg);
        for text in ["job: million rows a second", "job: CPU seconds", "block.size", "1", "16", "parallelism=1", "parallelism=2"] {
            assert!(texts.contains(&text), "{text:?} is not among {texts:?}");
        }
        // A point for each combination in each half, line by line: by height, of which 0 is at the top.
        let points = points(&svg);
        assert_eq!(points.len(), 8, "{points:?}");
        let (rates, cpu) = points.split_at(4);
        for half in [rates, cpu] {
            assert!(half[0].0 == half[2].0 && half[1].0 == half[3].0 && half[0].0 < half[1].0, "{half:?}");
        }
        assert!(rates[0].1 > rates[1].1 && rates[1].1 == rates[2].1 && rates[2].1 > rates[3].1, "{rates:?}");
        assert!(cpu[0].1 < cpu[1].1 && cpu[1].1 == cpu[2].1 && cpu[2].1 < cpu[3].1, "{cpu:?}");
    }

    #[test]
    fn little_is_drawn_too() {
        // Without a setting the job is the only point.
        let one = svg("job", &[], &[combination(&[], &[1.0])]).unwrap();
        assert_eq!(points(&one).len(), 2);
        assert!(texts(&one).contains(&"job"), "{one}");
        // What takes no time at all has a plot as well.
        let idle = Measured { rows_per_s: 0.0, user_s: 0.0, sys_s: 0.0, ..Measured::of(1.0) };
        let idle = Combination { values: vec!["1".into()], runs: vec![idle] };
        assert_eq!(points(&svg("a < b & c", &["block.size"], &[idle]).unwrap()).len(), 2);
    }
}
