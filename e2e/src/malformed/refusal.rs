//! Whether a refusal names the field that is wrong.

use kube::core::Status;

/// The top-level fields of an object that can be wrong.
const ROOTS: [&str; 2] = ["spec", "metadata"];

/// Words that name a field without its path. The first are the API server's, about a name in a patch. The others are
/// those of a rule of ours that is a rule of the whole object, because it compares the object with its old state.
const SAID: [&str; 2] = ["the name of the object (", "spec can no longer change:"];

/// Whether a refusal names a field: in a cause, or in its message, as for unknown fields.
#[must_use]
pub fn says_where(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let mut words = status.message.split(|c: char| c.is_whitespace() || c == '"');
    causes.any(|cause| ROOTS.contains(&cause.field.as_str()) || is_path(&cause.field))
        || words.any(is_path)
        || SAID.iter().any(|said| status.message.contains(said))
}

/// Whether a text begins like the path of a field in a root, such as `spec.replicas`.
fn is_path(text: &str) -> bool {
    let field = |root: &&str| text.strip_prefix(*root)?.strip_prefix('.');
    ROOTS.iter().filter_map(field).any(|field| field.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_field(field: &str) -> bool {
        let causes = json!([{"reason": "FieldValueInvalid", "message": "Invalid value: 4", "field": field}]);
        says_where(&serde_json::from_value(json!({"code": 422, "details": {"causes": causes}})).unwrap())
    }

    fn in_words(message: &str) -> bool {
        says_where(&serde_json::from_value(json!({"code": 400, "message": message})).unwrap())
    }

    #[test]
    fn a_cause_is_the_path_of_a_field() {
        for field in [
            "spec",
            "metadata",
            "metadata.name",
            "spec.replicas",
            "spec.etcdadmConfigSpec.files[0].path",
            "spec.etcdadmConfigSpec.etcdadmArgs[a/b]",
        ] {
            assert!(of_field(field), "{field}");
        }
        for field in ["", "<nil>", "patch", "status.replicas", "specs.replicas", "special", "spec.", "spec..a"] {
            assert!(!of_field(field), "{field}");
        }
    }

    #[test]
    fn words_have_a_path_or_name_the_field_otherwise() {
        let decoding = "EtcdCluster in version \"v1beta1\" cannot be handled as a EtcdCluster: strict decoding error";
        let invalid = "EtcdCluster.etcdcluster.cluster.x-k8s.io \"a\" is invalid: <nil>: Invalid value";
        for message in [
            "the name of the object (null) does not match the name on the URL (malformed-3)",
            &format!("{decoding}: unknown field \"spec.unknown\""),
            &format!("{decoding}: unknown field \"spec.\u{e4}\""),
            &format!("{decoding}: unknown field \"spec.etcdadmConfigSpec.files[1].0\""),
            &format!("{invalid}: metadata.name must have at most 50 characters"),
            &format!("{invalid}: spec can no longer change: the Machine's bootstrap data was made from it"),
        ] {
            assert!(in_words(message), "{message}");
        }
        for message in [
            "",
            "specify a name",
            "special characters are not allowed",
            "its spec is wrong",
            "the metadata server does not answer",
            "there is no spec. Write one",
            "see status.dataSecretName",
            &format!("{decoding}: json: cannot unmarshal"),
            &format!("{invalid}: it is wrong"),
        ] {
            assert!(!in_words(message), "{message}");
        }
    }
}
