//! Changes of a good document.

use super::schema::{Place, is_time, places};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

/// Texts that have a special meaning to YAML, a template engine, a shell, a file system or a terminal, that look like
/// another type, or that are barely text.
const ODD: [&str; 25] = [
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    "a\r\nb",
    "\u{1b}[31m",
    "\u{feff}a",
    "\u{202e}cba",
    "e\u{301}\u{301}\u{301}",
    "\u{1f469}\u{200d}\u{1f680}",
    "\u{10ffff}",
    "J\u{fc}rgen \u{df}\u{130}",
    "null",
    "true",
    "0x10",
    "1e9",
    "- a: [b, {c: d}] & * ! | > % @ `",
    "'single' \"double\" \\back",
    "{{ ds.meta_data.local_hostname }}{% raw %}{#",
    "$(id) `id` ${HOME} ; true",
    "../../../../etc/passwd",
    "/",
    "https://user:password@[::1]:99999/a?b=c#d",
    "-----BEGIN CERTIFICATE-----",
];

/// Texts that some fields accept, and others do not.
const PLAUSIBLE: [&str; 28] = [
    "a",
    "demo",
    "3.6.16",
    "v3.5.21",
    "3.7.0-rc.1",
    "3.4.0",
    "99999.0.0",
    "10s",
    "1m30s",
    "24",
    "1000000",
    "0640",
    "999999999999",
    "root:root",
    "/etc/motd",
    "/srv/etcd/",
    "/etc/etcd/pki/ca.key",
    "/run/cluster-api/x",
    "aGVsbG8=",
    "a.example,10.0.0.1",
    "http://127.0.0.1:2381",
    "https://[fd00::1]:2379/a",
    "mirror.example:5000/a",
    "infrastructure.cluster.x-k8s.io/v1beta1",
    "DockerMachineTemplate",
    "TLS_AES_128_GCM_SHA256",
    "max-learners",
    "2026-11-23T04:00:00Z",
];

/// Times, and texts that are almost times.
const TIMES: [&str; 15] = [
    "2026-11-23T04:00:00Z",
    "2026-11-23t04:00:00.5z",
    "2026-11-23T04:00:00.123456789+02:00",
    "2026-11-23T04:00:00.1234567890Z",
    "2026-11-23T04:00:00,5Z",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "2026-11-23T04:00:00+99:99",
    "2026-11-23T04:00:60Z",
    "2026-02-30T04:00:00Z",
    "2026-11-23T04:00:00",
    "2026-11-23 04:00:00Z",
    "2026-11-23",
    "1700000000",
    "tomorrow",
];

/// Numbers at the limits of types.
const ENDS: [i64; 10] =
    [i64::MIN, i32::MIN as i64 - 1, i32::MIN as i64, -1, 0, 1, 2, i32::MAX as i64, i32::MAX as i64 + 1, i64::MAX];

/// The length of a huge text in bytes, and of a huge list in entries.
const MANY: (usize, usize) = (20_000, 300);
/// The most bytes that a list may have: the API server accepts requests of 3 MiB, and a document is changed several
/// times.
const MOST: usize = 500_000;

/// A change of the value at one place.
type Change = fn(&mut StdRng, &Value, &Value) -> Option<Value>;

/// The kinds of changes of a value, given its schema. A change returns `None` if it cannot be made to this value.
const CHANGES: [(&str, Change); 9] = [
    ("another type", another_type),
    ("out of bounds", out_of_bounds),
    ("huge", huge),
    ("empty", empty),
    ("odd text", odd_text),
    ("an unknown field", unknown_field),
    ("a field less", field_less),
    ("a field more", field_more),
    ("another good value", another_value),
];

/// Changes a document at one place, and returns the change and its place; `None` if it could not be made there.
pub(super) fn change(random: &mut StdRng, document: &mut Value, schema: &Value) -> Option<String> {
    // Only few changes are to metadata, which Kubernetes itself validates.
    if random.random_ratio(1, 20) {
        return Some(metadata(random, document));
    }
    let mut all: Vec<Place<'_>> = Vec::new();
    places(schema, document.get("spec")?, "/spec", &mut all);
    let place = pick(random, &all);
    let (what, make) = pick(random, &CHANGES);
    let value = document.pointer_mut(&place.pointer)?;
    let made = make(random, place.schema, value).filter(|made| *made != *value)?;
    *value = made;
    Some(format!("{}: {what}", path(&place.pointer)))
}

/// A JSON pointer in the form of Kubernetes' field paths.
fn path(pointer: &str) -> String {
    let mut path = String::new();
    for name in pointer.split('/').skip(1) {
        let name = &name.replace("~1", "/").replace("~0", "~");
        match name.parse::<usize>() {
            Ok(index) => path += &format!("[{index}]"),
            Err(_) if path.is_empty() => path += name,
            Err(_) => path += &format!(".{name}"),
        }
    }
    path
}

fn pick<'a, T>(random: &mut StdRng, list: &'a [T]) -> &'a T {
    &list[random.random_range(0..list.len())]
}

fn metadata(random: &mut StdRng, document: &mut Value) -> String {
    let field = *pick(random, &["name", "labels", "annotations"]);
    let odd = if random.random_bool(0.5) {
        (*pick(random, &ODD)).to_owned()
    } else {
        "n".repeat(random.random_range(40..400))
    };
    document["metadata"][field] = match field {
        "name" => json!(odd),
        _ => json!({(*pick(random, &["a", "example.org/a", "a/b/c", odd.as_str()])): odd}),
    };
    format!("metadata.{field}: odd text")
}

fn type_of(schema: &Value) -> &str {
    schema["type"].as_str().unwrap_or_default()
}

/// A bound of a number. The bounds in our CRDs are integers.
fn bound(schema: &Value, name: &str) -> Option<i64> {
    schema[name].as_f64().map(|bound| bound as i64)
}

fn another_value(random: &mut StdRng, schema: &Value, _: &Value) -> Option<Value> {
    Some(sample(random, schema, 0))
}

fn another_type(random: &mut StdRng, schema: &Value, _: &Value) -> Option<Value> {
    let others = [
        json!(true),
        json!(7),
        json!(-0.5),
        json!("a"),
        json!([]),
        json!({}),
        json!(null),
        json!([null]),
        json!({"a": 1}),
    ];
    let made = pick(random, &others);
    let is_the_same = matches!(
        (type_of(schema), made),
        ("boolean", Value::Bool(_))
            | ("string", Value::String(_))
            | ("array", Value::Array(_))
            | ("object", Value::Object(_))
    );
    (!is_the_same).then(|| made.clone())
}

fn out_of_bounds(random: &mut StdRng, schema: &Value, value: &Value) -> Option<Value> {
    match value {
        Value::Number(_) => {
            let beyond = |name: &str, by: i64| bound(schema, name).map(|bound| json!(bound + by));
            let near = [beyond("minimum", -1), beyond("maximum", 1), Some(json!(0.5)), Some(json!(1e300))];
            let far = ENDS.map(|end| Some(json!(end)));
            pick(random, &[near.as_slice(), far.as_slice()].concat()).clone()
        }
        Value::String(_) if is_time(schema) => Some(json!(pick(random, &TIMES))),
        Value::String(_) if schema["enum"].is_array() => Some(json!(pick(random, &PLAUSIBLE))),
        Value::String(_) => {
            let most = schema["maxLength"].as_u64().and_then(|most| usize::try_from(most).ok())?;
            Some(json!("a".repeat(most + 1)))
        }
        Value::Array(items) => {
            let most = schema["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok())?;
            let item = items.first().cloned().unwrap_or_else(|| sample(random, &schema["items"], 0));
            many(&[item], most + 1)
        }
        _ => None,
    }
}

/// A list of `count` entries, which repeats `items`; `None` if it would be too large.
fn many(items: &[Value], count: usize) -> Option<Value> {
    let of_one = items.iter().map(|item| item.to_string().len()).max()?;
    (of_one * count <= MOST).then(|| items.iter().cycle().take(count).cloned().collect())
}

fn huge(random: &mut StdRng, schema: &Value, value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => {
            let part = if text.is_empty() || random.random_bool(0.5) { "\u{1f600}" } else { text.as_str() };
            Some(json!(part.repeat(MANY.0 / part.len())))
        }
        Value::Array(items) => {
            let some: Vec<Value> = items.iter().cloned().chain([sample(random, &schema["items"], 0)]).collect();
            many(&some, MANY.1)
        }
        Value::Object(_) if schema["additionalProperties"].is_object() => {
            let entry = |index: usize| (format!("key-{index}"), json!("a"));
            Some(Value::Object((0..MANY.1).map(entry).collect()))
        }
        Value::Number(_) => Some(json!(u64::MAX)),
        _ => None,
    }
}

fn empty(random: &mut StdRng, _: &Value, value: &Value) -> Option<Value> {
    Some(match value {
        _ if random.random_ratio(1, 4) => Value::Null,
        Value::String(_) => json!(""),
        Value::Array(_) => json!([]),
        Value::Object(_) => json!({}),
        _ => Value::Null,
    })
}

fn odd_text(random: &mut StdRng, schema: &Value, value: &Value) -> Option<Value> {
    let odd = *pick(random, &ODD);
    match value {
        Value::String(text) => Some(match random.random_range(0..3) {
            0 => json!(odd),
            1 => json!(format!("{text}{odd}")),
            _ => json!(format!("{odd}{text}")),
        }),
        Value::Object(fields) if schema["additionalProperties"].is_object() => {
            let mut fields = fields.clone();
            fields.insert(odd.to_owned(), json!(pick(random, &ODD)));
            Some(Value::Object(fields))
        }
        _ => None,
    }
}

fn unknown_field(random: &mut StdRng, _: &Value, value: &Value) -> Option<Value> {
    let mut fields = value.as_object()?.clone();
    let name = *pick(random, &["unknown", "Version", "spec", "kind", "metadata", "x-y", "\u{e4}", "0"]);
    fields.insert(name.to_owned(), json!(pick(random, &PLAUSIBLE)));
    Some(Value::Object(fields))
}

fn field_less(random: &mut StdRng, _: &Value, value: &Value) -> Option<Value> {
    let mut fields: Map<String, Value> = value.as_object().filter(|fields| !fields.is_empty())?.clone();
    let name = fields.keys().nth(random.random_range(0..fields.len()))?.clone();
    fields.remove(&name);
    Some(Value::Object(fields))
}

/// Adds a field that is valid by itself and may contradict another one, or adds one entry to a list.
fn field_more(random: &mut StdRng, schema: &Value, value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let absent = schema["properties"].as_object()?.iter().filter(|(name, _)| !fields.contains_key(*name));
            let absent: Vec<_> = absent.collect();
            if absent.is_empty() {
                return None;
            }
            let (name, inner) = *pick(random, &absent);
            let mut fields = fields.clone();
            fields.insert(name.clone(), sample(random, inner, 0));
            Some(Value::Object(fields))
        }
        Value::Array(items) => {
            let again = !items.is_empty() && random.random_bool(0.5);
            let more = if again { pick(random, items).clone() } else { sample(random, &schema["items"], 0) };
            Some(items.iter().cloned().chain([more]).collect())
        }
        _ => None,
    }
}

/// A value that its schema probably accepts. `depth` is the depth of recursion, which is limited.
fn sample(random: &mut StdRng, schema: &Value, depth: usize) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return pick(random, values).clone();
    }
    match type_of(schema) {
        "boolean" => json!(random.random_bool(0.5)),
        "integer" => {
            let least = bound(schema, "minimum").unwrap_or(-10);
            json!(random.random_range(least..=bound(schema, "maximum").unwrap_or(10).max(least)))
        }
        "string" if is_time(schema) => json!(pick(random, &TIMES)),
        "string" => json!(pick(random, &PLAUSIBLE)),
        "array" => (0..random.random_range(0..3)).map(|_| sample(random, &schema["items"], depth + 1)).collect(),
        _ if schema["additionalProperties"].is_object() => {
            json!({(*pick(random, &PLAUSIBLE)): sample(random, &schema["additionalProperties"], depth + 1)})
        }
        _ => {
            let required = |name: &str| schema["required"].as_array().is_some_and(|list| list.contains(&json!(name)));
            let mut fields = Map::new();
            for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
                if required(name) || (depth < 3 && random.random_bool(0.4)) {
                    fields.insert(name.clone(), sample(random, inner, depth + 1));
                }
            }
            Value::Object(fields)
        }
    }
}
