//! Redacts objects and lines of text for a report: keys, passwords, tokens. Pure.
//!
//! It looks at the names of fields and at the form of values, and redacts too much rather than too little. It does not
//! find a password that looks like a word, in a place that does not indicate a password.

use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Suffixes of the names of fields whose values are redacted: in lower case, in the singular, and without punctuation.
const SECRET_NAMES: [&str; 25] = [
    "accesskey",
    "accesskeyid",
    "apikey",
    "authorization",
    "cacert",
    "certificatekey",
    "content",
    "cookie",
    "credential",
    "encryptionkey",
    "keydata",
    "kubeconfig",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "psk",
    "pwd",
    "secret",
    "secretkey",
    "signingkey",
    "sshauthorizedkey",
    "stringdata",
    "token",
    "userdata",
];
/// Fields that stay in an object that is the value of such a field, because they only refer to something.
const REFERENCES: [&str; 9] =
    ["apiGroup", "apiVersion", "key", "kind", "name", "namespace", "optional", "secretName", "uid"];
/// An annotation that nobody needs, because it repeats the rest: the manifest as it was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// A word of at least this many characters may be a key.
const LONG: usize = 32;

static PEM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?s)-----BEGIN ([A-Z0-9 ]+)-----.*?(?:-----END [A-Z0-9 ]+-----|\z)"));
static IN_URL: LazyLock<Regex> = LazyLock::new(|| pattern(r#"://[^\s"'<>]*@"#));
static BEARER: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(bearer\s+)[\w.~+/=-]+"));
static AUTHORIZATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?i)(authorization["'\\]*\s*[:=]\s*\\*["']?(?:\w+\s+)?)[^\s"'\\]+"#));
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let names = r"password|passwd|passphrase|pwd|token|secret|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|secret[_-]?key|certificate[_-]?key|credentials?|psk|cookie";
    let value = r#""(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"',;&}\]]+"#;
    pattern(&format!(r#"(?is)([\w.-]*(?:{names})["'\\]*\s*[:=]\s*\\*|(?:^|\s)--?[\w-]*(?:{names})\s+)(?:{value})"#))
});
static USER: LazyLock<Regex> = LazyLock::new(|| pattern(r"((?:^|\s)(?:-u|--user)[ =]+)\S+:\S+"));
static BOOTSTRAP_TOKEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"));
static LONG_WORD: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"(sha256:)?([A-Za-z0-9+/_-]{{{LONG},}}=*)")));

fn pattern(text: &str) -> Regex {
    // They are constants, and tests use every one.
    Regex::new(text).expect("it is a pattern")
}

/// Redacts an object.
pub fn object(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    value("", object);
}

/// Redacts a text: keys, passwords and tokens.
#[must_use]
pub fn text(text: &str) -> String {
    let text = PEM.replace_all(text, "(redacted: $1)");
    let text = IN_URL.replace_all(&text, "://(redacted)@");
    let text = BEARER.replace_all(&text, "$1(redacted)");
    let text = AUTHORIZATION.replace_all(&text, "$1(redacted)");
    let text = NAMED.replace_all(&text, "$1(redacted)");
    let text = USER.replace_all(&text, "$1(redacted)");
    let text = BOOTSTRAP_TOKEN.replace_all(&text, "(redacted)");
    LONG_WORD.replace_all(&text, long_word).into_owned()
}

/// Redacts lines, such as those of a log. A name at the end of a line says nothing about the next line.
#[must_use]
pub fn lines(found: &str) -> String {
    let found = PEM.replace_all(found, "(redacted: $1)");
    found.lines().map(|line| text(line) + "\n").collect()
}

fn long_word(found: &Captures<'_>) -> String {
    let all = found[0].to_owned();
    // The digest of an image stays.
    if found.get(1).is_some() || !looks_random(&found[2]) { all } else { "(redacted)".to_owned() }
}

/// Whether a long word may be a key. Names in Kubernetes and paths have no capitals, and words of programs have no
/// digits.
fn looks_random(word: &str) -> bool {
    let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
    let (digits, lower, upper) =
        (has(char::is_ascii_digit), has(char::is_ascii_lowercase), has(char::is_ascii_uppercase));
    let is_one_word = word.trim_end_matches('=').chars().all(|c| c.is_ascii_alphanumeric());
    (digits && lower && upper) || (is_one_word && digits) || word.ends_with('=') || (upper && word.contains('+'))
}

fn value(name: &str, found: &mut Value) {
    match found {
        Value::Array(items) => items.iter_mut().for_each(|item| value(name, item)),
        Value::Object(fields) if is_secret(name) => {
            for (field, found) in fields {
                match found {
                    // A reference may be a value in another form.
                    Value::String(found) if REFERENCES.contains(&field.as_str()) => *found = text(found),
                    Value::Number(_) if REFERENCES.contains(&field.as_str()) => {}
                    found => value(name, found),
                }
            }
        }
        Value::Object(fields) => {
            named_value(fields);
            fields.iter_mut().for_each(|(field, found)| value(field, found));
        }
        Value::String(text) if is_secret(name) => *found = left_out(text.len()),
        Value::String(found) => *found = document(found).unwrap_or_else(|| text(found)),
        Value::Number(number) if is_secret(name) => *found = left_out(number.to_string().len()),
        Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// A text that is an object or a list in JSON, such as a manifest in an annotation, redacted by its fields.
fn document(found: &str) -> Option<String> {
    let mut document = serde_json::from_str::<Value>(found).ok().filter(|it| it.is_object() || it.is_array())?;
    value("", &mut document);
    Some(document.to_string())
}

/// `{name: DB_PASSWORD, value: …}`, as environment variables and HTTP headers are written.
fn named_value(fields: &mut Map<String, Value>) {
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    if is_secret(name)
        && let Some(found) = fields.get_mut("value")
    {
        value("secret", found);
    }
}

fn is_secret(name: &str) -> bool {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    let name = name.strip_suffix('s').unwrap_or(&name);
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

fn left_out(bytes: usize) -> Value {
    Value::String(format!("(redacted: {})", crate::text::count(bytes, "byte")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const KEY: &str = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MFF1dXhDb3JnZQ==";

    #[test]
    fn what_looks_like_a_key_goes() {
        for line in [
            format!("aws s3 cp s3://b/x --sse-c-key {KEY}"),
            "export AWS_SECRET_ACCESS_KEY=hunter2-not".to_owned(),
            "curl -u me:hunter2-not https://example.org".to_owned(),
            "curl -H 'Authorization: Basic hunter2-not' x".to_owned(),
            "curl -H \"authorization: Bearer hunter2-not\" x".to_owned(),
            "https://me:hunter2-not@proxy:3128".to_owned(),
            "kubeadm join --token abcdef.0123456789abcdef".to_owned(),
            "joining with abcdef.0123456789abcdef".to_owned(),
            "login --password hunter2-not".to_owned(),
            r#"{"a":"{\"token\":\"hunter2-not\"}"}"#.to_owned(),
            "password: 'hunter2-not it is'".to_owned(),
            "-----BEGIN EC PRIVATE KEY-----\nhunter2-not\n-----END EC PRIVATE KEY-----".to_owned(),
            r"x -----BEGIN PRIVATE KEY-----\nhunter2-not".to_owned(),
            "key 0123456789abcdef0123456789abcdef".to_owned(),
        ] {
            let shown = text(&line);
            assert!(shown.contains("(redacted"), "{line}: {shown}");
            for secret in ["hunter2-not", "it is", "6789abcdef", KEY] {
                assert!(!shown.contains(secret), "{line}: {shown}");
            }
        }
    }

    #[test]
    fn lines_are_looked_at_one_by_one_but_for_keys_of_several() {
        let log = "a token:\nnext\n-----BEGIN KEY-----\nAAAA\nBB==\n-----END KEY-----\npassword=x\n";
        assert_eq!(lines(log), "a token:\nnext\n(redacted: KEY)\npassword=(redacted)\n");
    }

    #[test]
    fn what_one_needs_to_know_stays() {
        for line in [
            "Machine demo-etcd-0: https://10.77.0.11:2379: no answer within 5 s (since 2026-11-23T07:59:20Z)",
            "Secret default/demo-managed-etcd does not exist",
            "image registry.example.org/manager@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "uid 0f0f5b8e-5f0e-4b55-9d0a-6c0b6f1c2d3e, member 8e9e05c52164694d",
            "EtcdCluster.v1beta1.etcdcluster.cluster.x-k8s.io/demo-etcd.default",
            "/var/lib/kubelet/pods/etc/kubernetes/pki/apiserver-etcd-client.crt",
            "WaitingForClusterInfrastructureAndMore: a-very-long-name-of-a-machine-deployment-in-a-namespace",
            "preEtcdadmCommands: [modprobe tls]",
        ] {
            assert_eq!(text(line), line);
        }
    }

    #[test]
    fn manifests_in_annotations_and_keys_in_references_go_too() {
        let manifest = json!({"spec": {"files": [{"path": "/a", "content": "login hunter2-not"}]}}).to_string();
        let pem = "-----BEGIN PRIVATE KEY-----\nhunter2-not\n-----END PRIVATE KEY-----";
        let mut found = json!({
            "metadata": {"name": "a", "annotations": {"kapp.k14s.io/original": manifest}},
            "spec": {"variables": [{"name": "registryToken", "value": {"key": pem, "name": "creds"}}]}
        });
        object(&mut found);
        let shown = found.to_string();
        assert!(!shown.contains("hunter2-not"), "{shown}");
        for stays in [r#"\"path\":\"/a\""#, r#""name":"creds""#] {
            assert!(shown.contains(stays), "{shown}");
        }
    }

    #[test]
    fn fields_that_hold_secrets_are_left_out_and_references_stay() {
        let mut found = json!({
            "metadata": {"name": "a", "managedFields": [{}], "annotations": {LAST_APPLIED: "x", "b": "c"}},
            "spec": {
                "files": [{"path": "/a", "content": "hunter2"},
                    {"path": "/b", "contentFrom": {"secret": {"name": "b", "key": "k"}}}],
                "users": [{"name": "me", "passwd": "hunter2", "sshAuthorizedKeys": ["ssh-ed25519 hunter2"]}],
                "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "A", "value": "b"}],
                "credentials": {"name": "c", "inner": {"x": "hunter2"}},
                "pin": {"password": 1234},
                "dataSecretName": "demo-etcd-0",
                "volumes": [{"secret": {"secretName": "s"}}],
                "automountServiceAccountToken": false
            }
        });
        object(&mut found);
        assert_eq!(
            found,
            json!({
                "metadata": {"name": "a", "annotations": {"b": "c"}},
                "spec": {
                    "files": [{"path": "/a", "content": "(redacted: 7 bytes)"},
                        {"path": "/b", "contentFrom": {"secret": {"name": "b", "key": "k"}}}],
                    "users": [{"name": "me", "passwd": "(redacted: 7 bytes)",
                        "sshAuthorizedKeys": ["(redacted: 19 bytes)"]}],
                    "env": [{"name": "DB_PASSWORD", "value": "(redacted: 7 bytes)"}, {"name": "A", "value": "b"}],
                    "credentials": {"name": "c", "inner": {"x": "(redacted: 7 bytes)"}},
                    "pin": {"password": "(redacted: 4 bytes)"},
                    "dataSecretName": "demo-etcd-0",
                    "volumes": [{"secret": {"secretName": "s"}}],
                    "automountServiceAccountToken": false
                }
            })
        );
    }

    proptest! {
        /// Keys as programs make them, at any place in a line.
        #[test]
        fn keys_are_found_wherever_they_stand(
            secret in "[0-9a-f]{32,64}|[A-Z]{4}[a-z]{4}[0-9]{4}[A-Za-z0-9+/]{20,40}={0,2}|[A-Za-z0-9]{6}[A-Z][a-z][0-9][A-Za-z0-9_-]{30}",
            before in "[ a-z:]{0,20} ", after in "( [ a-z:]{0,20})?",
        ) {
            let shown = text(&format!("{before}{secret}{after}"));
            prop_assert!(!shown.contains(&secret), "{shown}");
        }

        /// Values with a name that says that they are secret.
        #[test]
        fn named_values_are_left_out(secret in "[A-Za-z0-9!$%*.:-]{6,20}", sep in "=|: ", name in "PASSWORD|my-token|api_key") {
            let shown = text(&format!("set {name}{sep}{secret} now"));
            prop_assert!(!shown.contains(&secret), "{shown}");
        }
    }
}
