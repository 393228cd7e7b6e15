//! The reference of the API: every field, as its schema describes it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use serde_json::{Value, json};
use std::fmt::Write;

const HEAD: &str = "\
# API reference

Every field of EtcdCluster, EtcdadmConfig and EtcdadmConfigTemplate, as the API server describes it (`kubectl explain`).
[api.md](api.md) says how fields belong together, and what comes of them. The kinds of the local infrastructure have [a
page of their own](local-infrastructure.md). `make generate` writes this one; the texts stand in `api/`.

A field with `*` has to be given. A rule is what the API server says when a value breaks it.
";

/// Fields that another part of the page describes.
const ELSEWHERE: [(&str, &str); 3] = [
    ("EtcdCluster.spec.etcdadmConfigSpec", "[the spec of an EtcdadmConfig](#etcdadmconfig-spec)"),
    ("EtcdadmConfigTemplate.spec.template.spec", "[the spec of an EtcdadmConfig](#etcdadmconfig-spec)"),
    ("conditions", "[conditions of Kubernetes](conditions.md)"),
];

/// The page about these kinds.
///
/// # Errors
/// When a schema cannot be read.
pub fn page(crds: &[CustomResourceDefinition]) -> Result<String, Box<dyn std::error::Error>> {
    let mut page = HEAD.to_owned();
    for crd in crds {
        let kind = &crd.spec.names.kind;
        let versions: Vec<&str> = crd.spec.versions.iter().map(|version| version.name.as_str()).collect();
        let stored = crd.spec.versions.iter().find(|version| version.storage).ok_or("no version is stored")?;
        let schema = stored.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let schema = schema.ok_or("a version has no schema")?;
        write!(page, "\n## {kind}\n\n{}\n\n", text(schema.description.as_deref().unwrap_or_default()))?;
        writeln!(page, "Group `{}`, versions {}: all have this schema.", crd.spec.group, versions.join(", "))?;
        for rule in rules(schema) {
            writeln!(page, "Rule: {rule}.")?;
        }
        for part in ["spec", "status"] {
            let Some(part_schema) = schema.properties.as_ref().and_then(|properties| properties.get(part)) else {
                continue;
            };
            write!(page, "\n### {kind} {part}\n\n| field | type | default | description |\n|---|---|---|---|\n")?;
            for row in rows(part_schema, &format!("{kind}.{part}"), "") {
                writeln!(page, "{row}")?;
            }
        }
    }
    Ok(page)
}

/// A row for each field below a schema. `place` is the path of the schema from the kind on, and `above` is how the
/// field's path in the table begins.
fn rows(schema: &JSONSchemaProps, place: &str, above: &str) -> Vec<String> {
    let required = schema.required.clone().unwrap_or_default();
    let mut rows = Vec::new();
    for (name, field) in schema.properties.iter().flatten() {
        let (path, place) = (format!("{above}{name}"), format!("{place}.{name}"));
        let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == place || other == name).map(|(_, link)| *link);
        let star = if required.contains(name) { "*" } else { "" };
        let default = field.default.as_ref().map(|default| format!("`{}`", default.0)).unwrap_or_default();
        rows.push(format!("| `{path}`{star} | {} | {default} | {} |", kind_of(field), described(field, elsewhere)));
        if elsewhere.is_none() {
            rows.extend(below(field, &place, &path));
        }
    }
    rows
}

/// The rows of the fields inside a field.
fn below(field: &JSONSchemaProps, place: &str, path: &str) -> Vec<String> {
    let mut rows = rows(field, place, &format!("{path}."));
    if let Some(items) = items(field) {
        rows.extend(self::rows(&items, place, &format!("{path}[].")));
    }
    rows
}

fn items(field: &JSONSchemaProps) -> Option<JSONSchemaProps> {
    inner(serde_json::to_value(field).ok()?.get("items")?)
}

fn inner(schema: &Value) -> Option<JSONSchemaProps> {
    serde_json::from_value(schema.clone()).ok()
}

/// The type of a field in a word or two, and what a value may be.
fn kind_of(field: &JSONSchemaProps) -> String {
    let value = serde_json::to_value(field).unwrap_or_default();
    let of = |schema: &Value| inner(schema).map_or_else(|| "any".to_owned(), |schema| kind_of(&schema));
    let mut said = match value["type"].as_str() {
        Some("array") => format!("list of {}", of(&value["items"])),
        Some("object") if value["additionalProperties"].is_object() => {
            format!("map to {}", of(&value["additionalProperties"]))
        }
        _ if value["x-kubernetes-int-or-string"] == json!(true) => "integer or string".to_owned(),
        Some(simple) => value["format"].as_str().filter(|format| *format == "date-time").unwrap_or(simple).to_owned(),
        None => "any".to_owned(),
    };
    if let Some(values) = value["enum"].as_array() {
        let values: Vec<String> = values.iter().filter(|value| !value.is_null()).map(quoted).collect();
        said = format!("one of {}", values.join(", "));
    }
    let bounds = [("minimum", "at least"), ("maximum", "at most")];
    let bounds = bounds.iter().filter_map(|(bound, word)| Some(format!("{word} {}", value[bound].as_f64()?)));
    [said].into_iter().chain(bounds).collect::<Vec<_>>().join(", ")
}

fn quoted(value: &Value) -> String {
    format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// The description of a field, and its rules.
fn described(field: &JSONSchemaProps, elsewhere: Option<&str>) -> String {
    let mut said = text(field.description.as_deref().unwrap_or_default());
    if let Some(elsewhere) = elsewhere {
        write!(said, " See {elsewhere}.").unwrap_or_default();
    }
    for rule in rules(field) {
        write!(said, " Rule: {rule}.").unwrap_or_default();
    }
    said.trim().to_owned()
}

/// What the API server says when a value breaks a rule.
fn rules(field: &JSONSchemaProps) -> Vec<String> {
    let rules = field.x_kubernetes_validations.iter().flatten();
    rules.filter_map(|rule| rule.message.as_deref()).map(text).collect()
}

/// The text in one line, for a cell of a table.
fn text(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "\\<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_row_that_says_something() {
        let page = page(&api::crds::all()).unwrap();
        for expected in [
            "| `replicas` | ",
            "| `infrastructureTemplate`* | object |",
            "| `infrastructureTemplate.kind`* | string |",
            "| `remediation.mode` | one of `Replace`, `Report` | `\"Replace\"` |",
            "| `members[].id`* | string |",
            "### EtcdadmConfig spec",
            "| `files[].path`* | string |",
            "See [the spec of an EtcdadmConfig](#etcdadmconfig-spec).",
        ] {
            assert!(page.contains(expected), "{expected} is not in the page");
        }
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 150, "{}", rows.len());
        let silent: Vec<&&str> = rows.iter().filter(|row| row.trim_end().ends_with("|  |")).collect();
        assert!(silent.is_empty(), "these fields have no description: {silent:#?}");
    }

    #[test]
    fn a_text_fits_into_a_cell() {
        assert_eq!(text("one|two\n  <three>"), "one\\|two \\<three>");
    }
}
