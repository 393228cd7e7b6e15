//! The part of OpenAPI that our CRDs use.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The schema of the spec for a document's kind and version.
pub(super) fn of_spec<'a>(crds: &'a [Value], document: &Value) -> Option<&'a Value> {
    let (group, version) = document["apiVersion"].as_str()?.split_once('/')?;
    let spec = crds.iter().map(|crd| &crd["spec"]);
    let mut of_kind = spec.filter(|spec| spec["group"] == group && spec["names"]["kind"] == document["kind"]);
    let versions = of_kind.next()?["versions"].as_array()?;
    let version = versions.iter().find(|known| known["name"] == version)?;
    version.pointer("/schema/openAPIV3Schema/properties/spec")
}

/// A place in a document, with what its schema says about it.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    /// JSON pointer.
    pub(super) pointer: String,
    pub(super) schema: &'a Value,
}

/// Every place in a value that its schema knows, from the top down.
pub(super) fn places<'a>(schema: &'a Value, value: &Value, pointer: &str, found: &mut Vec<Place<'a>>) {
    found.push(Place { pointer: pointer.to_owned(), schema });
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let Some(inner) = property(schema, name) else { continue };
                let name = name.replace('~', "~0").replace('/', "~1");
                places(inner, field, &format!("{pointer}/{name}"), found);
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            for (index, item) in items.iter().enumerate() {
                places(&schema["items"], item, &format!("{pointer}/{index}"), found);
            }
        }
        _ => (),
    }
}

/// The schema of a field: its own, or that of all values of a map.
fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"].get(name).or_else(|| Some(&schema["additionalProperties"]).filter(|map| map.is_object()))
}

/// Whether a text is a time. A CEL rule requires that, and it is the only CEL rule that our types depend on.
pub(super) fn is_time(schema: &Value) -> bool {
    let rules = schema["x-kubernetes-validations"].as_array();
    rules.into_iter().flatten().any(|rule| rule["rule"].as_str().is_some_and(|rule| rule.contains("timestamp(self)")))
}

/// What violates the schema, by path. Ignores the other CEL rules and defaults, and refuses unknown fields.
#[must_use]
pub fn violations(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            found.push(format!("{path}: {what}"));
        }
    };
    let limit = |name: &str| schema[name].as_f64();
    let within = |count: usize, least: &str, most: &str| {
        let count = u32::try_from(count).map_or(f64::INFINITY, f64::from);
        limit(least).is_none_or(|least| count >= least) && limit(most).is_none_or(|most| count <= most)
    };
    if value.is_null() && schema["nullable"] == true {
        return found;
    }
    if let Some(allowed) = schema["enum"].as_array() {
        must(allowed.contains(value), "not one of the values");
    }
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("boolean", Value::Bool(_)) => (),
        ("integer", Value::Number(number)) => {
            let bounds = if schema["format"] == "int32" {
                (i64::from(i32::MIN), i64::from(i32::MAX))
            } else {
                (i64::MIN, i64::MAX)
            };
            must(number.as_i64().is_some_and(|number| number >= bounds.0 && number <= bounds.1), "no integer");
            let number = number.as_f64();
            must(number >= limit("minimum").or(Some(f64::NEG_INFINITY)), "too low");
            must(number <= limit("maximum").or(Some(f64::INFINITY)), "too high");
        }
        ("string", Value::String(text)) => {
            must(within(text.chars().count(), "minLength", "maxLength"), "too short or too long");
            must(!is_time(schema) || text.parse::<Timestamp>().is_ok(), "no time");
        }
        ("array", Value::Array(items)) => {
            must(within(items.len(), "minItems", "maxItems"), "too few or too many");
            must(are_distinct(schema, items), "one is there twice");
            for (index, item) in items.iter().enumerate() {
                found.extend(violations(&schema["items"], item, &format!("{path}[{index}]")));
            }
        }
        ("object", Value::Object(fields)) => {
            must(within(fields.len(), "minProperties", "maxProperties"), "too few or too many");
            found.extend(of_fields(schema, fields, path));
        }
        _ => must(false, "of another type"),
    }
    found
}

fn of_fields(schema: &Value, fields: &Map<String, Value>, path: &str) -> Vec<String> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing = required.filter(|name| !fields.contains_key(*name)).map(|name| format!("{path}.{name}: required"));
    let mut found: Vec<String> = missing.collect();
    for (name, field) in fields {
        match property(schema, name) {
            Some(inner) => found.extend(violations(inner, field, &format!("{path}.{name}"))),
            None => found.push(format!("{path}.{name}: unknown")),
        }
    }
    found
}

/// Whether a list has distinct entries, as its type (set or map) requires.
fn are_distinct(schema: &Value, items: &[Value]) -> bool {
    let keys: Vec<&str> =
        schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let key = |item: &Value| match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => keys.iter().map(|key| item[*key].to_string()).collect::<Vec<_>>().join(" "),
        _ => item.to_string(),
    };
    let is_list = matches!(schema["x-kubernetes-list-type"].as_str(), None | Some("atomic"));
    is_list || items.iter().map(key).collect::<BTreeSet<_>>().len() == items.len()
}
