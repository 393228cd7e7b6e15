//! A page with the panels of a Grafana dashboard, drawn from Prometheus' answers. It shows what the dashboard looks
//! like without Grafana.

mod answers;

pub use answers::{Labels, Series, ask};

use serde_json::Value;
use std::collections::BTreeSet;

/// Size of a drawing. The page stretches it.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 120.0;
const STYLE: &str = "\
body { font: 12px DejaVu Sans, sans-serif; margin: 12px } h1 { font-size: 18px } p, ul, h2 { margin: 2px }
main { display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: 36px; gap: 4px }
section { border: 1px solid #ccc; overflow: hidden; padding: 4px } section.row { border: none; background: #eee }
h2 { font-size: 12px } small { color: #666; font-weight: normal } b { display: block; font-size: 28px; color: #fff }
svg { width: 100%; height: 120px; background: #fafafa } polyline { fill: none; stroke-width: 2 }
ul { columns: 2; list-style: none; padding: 0; font-size: 10px } th { text-align: left } td { padding-right: 8px }";

/// A series, and its name in the panel.
type Line<'a> = (String, &'a Series);

/// Every panel at its place in the grid, with its title and the answers to its queries in its unit. `answers` has one
/// answer for each query, in the order of the panels. Stats and tables show the last value.
#[must_use]
pub fn page(dashboard: &Value, answers: &[Vec<Series>]) -> String {
    let times = answers.iter().flatten().flat_map(|series| &series.points).map(|(time, _)| *time);
    let end = times.fold(1.0, f64::max);
    let mut answers = answers.iter();
    let mut panels = String::new();
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        let targets = panel["targets"].as_array().into_iter().flatten();
        let lines: Vec<Line<'_>> = targets
            .zip(answers.by_ref())
            .flat_map(|(target, answer)| {
                let pattern = target["legendFormat"].as_str().unwrap_or_default();
                answer.iter().map(move |series| (named(pattern, &series.labels), series))
            })
            .collect();
        let kind = panel["type"].as_str().unwrap_or_default();
        let field = &panel["fieldConfig"]["defaults"];
        let unit = field["unit"].as_str().unwrap_or_default();
        let content = match kind {
            "row" => String::new(),
            "stat" => stat(field, unit, &lines, end),
            "table" => table(panel, unit, &lines, end),
            _ => chart(unit, &lines, end),
        };
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap_or_default());
        let [title, description] = ["title", "description"].map(|key| escaped(panel[key].as_str().unwrap_or_default()));
        panels.push_str(&format!(
            "<section class=\"{kind}\" style=\"grid-area: {} / {} / span {height} / span {width}\">\
             <h2>{title} <small>{description}</small></h2>{content}</section>\n",
            y + 1,
            x + 1
        ));
    }
    let title = escaped(dashboard["title"].as_str().unwrap_or_default());
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<main>\n{panels}</main></body></html>\n"
    )
}

/// The panel of a single number.
fn stat(field: &Value, unit: &str, lines: &[Line<'_>], end: f64) -> String {
    let Some(value) = lines.first().and_then(|(_, series)| series.at_end(end)) else { return nothing() };
    let steps = field["thresholds"]["steps"].as_array().into_iter().flatten();
    let mut reached = steps.filter(|step| step["value"].as_f64().is_none_or(|from| value >= from));
    let colour = reached.next_back().and_then(|step| step["color"].as_str()).unwrap_or("green");
    format!("<b style=\"background: {}\">{}</b>", escaped(colour), shown(value, unit))
}

/// A table with a row for each series that has a value at the end.
fn table(panel: &Value, unit: &str, lines: &[Line<'_>], end: f64) -> String {
    let mut transformations = panel["transformations"].as_array().into_iter().flatten();
    let hides_value = transformations.any(|it| it["options"]["excludeByName"]["Value"].as_bool().unwrap_or_default());
    let columns: BTreeSet<&String> = lines.iter().flat_map(|(_, series)| series.labels.keys()).collect();
    let row = |(_, series): &Line<'_>| {
        let value = shown(series.at_end(end)?, unit);
        let labels = columns.iter().map(|name| series.labels.get(*name).map_or_else(String::new, |text| escaped(text)));
        let cells = labels.chain((!hides_value).then_some(value)).map(|cell| format!("<td>{cell}</td>"));
        Some(format!("<tr>{}</tr>", cells.collect::<String>()))
    };
    let rows: String = lines.iter().filter_map(row).collect();
    if rows.is_empty() {
        return nothing();
    }
    let head: String = columns.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
    format!("<table><tr>{head}</tr>{rows}</table>")
}

/// Lines from the beginning to the end, and a legend with the value of each at the end.
fn chart(unit: &str, lines: &[Line<'_>], end: f64) -> String {
    if lines.is_empty() {
        return nothing();
    }
    let values = lines.iter().flat_map(|(_, series)| &series.points).map(|(_, value)| *value);
    let top = values.fold(0.0, f64::max);
    let scale = if top > 0.0 { HEIGHT / top } else { 0.0 };
    let (mut drawn, mut legend) = (String::new(), String::new());
    for (number, (name, series)) in lines.iter().enumerate() {
        let colour = format!("hsl({} 65% 45%)", number * 67 % 360);
        let at = |(time, value): &(f64, f64)| format!("{:.1},{:.1}", time / end * WIDTH, HEIGHT - value * scale);
        let points: Vec<String> = series.points.iter().map(at).collect();
        drawn.push_str(&format!("<polyline stroke=\"{colour}\" points=\"{}\"/>", points.join(" ")));
        let last = series.at_end(end).map_or("–".to_owned(), |value| shown(value, unit));
        legend.push_str(&format!("<li style=\"color: {colour}\">{}: {last}</li>", escaped(name)));
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\">{drawn}</svg>\
         <p>0 to {}, in {end:.0} s</p><ul>{legend}</ul>",
        shown(top, unit)
    )
}

fn nothing() -> String {
    "<p>nothing</p>".to_owned()
}

/// The name of a series: the pattern, with labels in place of `{{label}}`. An empty label of Prometheus is the same as
/// none.
fn named(pattern: &str, labels: &Labels) -> String {
    let mut parts = pattern.split("{{");
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (label, rest) = part.split_once("}}").unwrap_or((part, ""));
        name.push_str(labels.get(label).map_or("", String::as_str));
        name.push_str(rest);
    }
    name.trim().to_owned()
}

/// A value in its unit. `unit` is Grafana's name of it.
fn shown(value: f64, unit: &str) -> String {
    match unit {
        "bytes" if value < 1_048_576.0 => format!("{:.0} KiB", value / 1024.0),
        "bytes" => format!("{:.1} MiB", value / 1_048_576.0),
        "percentunit" => format!("{:.1} %", value * 100.0),
        "s" if value >= 86_400.0 => format!("{:.0} days", value / 86_400.0),
        "s" if value < 1.0 => format!("{:.0} ms", value * 1000.0),
        "s" => format!("{value:.1} s"),
        "ops" | "reqps" => format!("{value:.2}/s"),
        _ => ((value * 100.0).round() / 100.0).to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn series(labels: &[(&str, &str)], points: &[(f64, f64)]) -> Series {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Series { labels, points: points.to_vec() }
    }

    #[test]
    fn every_panel_shows_its_own_answer_in_its_place_and_unit() {
        let at = |x: u64, y: u64| json!({"x": x, "y": y, "w": 8, "h": 4});
        let steps = json!([{"color": "green", "value": null}, {"color": "red", "value": 1}]);
        let dashboard = json!({"title": "Clusters & more", "panels": [
            {"type": "row", "title": "At a glance", "gridPos": at(0, 0)},
            {"type": "stat", "title": "Not Ready", "gridPos": at(0, 1), "targets": [{}],
             "fieldConfig": {"defaults": {"thresholds": {"steps": steps}}}},
            {"type": "timeseries", "title": "Size", "gridPos": at(8, 1), "fieldConfig": {"defaults": {"unit": "bytes"}},
             "targets": [{"legendFormat": "{{name}} {{reason}}"}, {"legendFormat": "quota"}]},
            {"type": "table", "title": "Certificates", "gridPos": at(16, 1), "targets": [{}],
             "fieldConfig": {"defaults": {"unit": "s"}}},
            {"type": "table", "title": "Decided last", "gridPos": at(0, 5), "targets": [{}],
             "transformations": [{"options": {"excludeByName": {"Value": true}}}]},
        ]});
        let answers = [
            vec![series(&[], &[(0.0, 0.0), (10.0, 2.0)])],
            vec![series(&[("name", "<demo>")], &[(0.0, 0.0), (5.0, 10_240.0), (10.0, 20_480.0)])],
            vec![series(&[], &[(0.0, 40_960.0)])],
            vec![series(&[("certificate", "ca")], &[(10.0, 172_800.0)]), series(&[("gone", "")], &[(9.0, 1.0)])],
            vec![series(&[("answer", "steady")], &[(10.0, 1.0)])],
        ];
        let page = page(&dashboard, &answers);
        for expected in [
            "<h1>Clusters &amp; more</h1>",
            "grid-area: 1 / 1 / span 4 / span 8\"><h2>At a glance",
            "grid-area: 2 / 9 / span 4 / span 8\"><h2>Size",
            "<b style=\"background: red\">2</b>",
            "points=\"0.0,120.0 200.0,90.0 400.0,60.0\"",
            "&lt;demo&gt;: 20 KiB</li>",
            "quota: –</li>",
            "0 to 40 KiB, in 10 s",
            "<tr><td>ca</td><td></td><td>2 days</td></tr></table>",
            "<tr><td>steady</td></tr></table>",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
    }
}
