//! Values of a Secret that was read without its type.

use k8s_openapi::ByteString;
use kube::api::DynamicObject;

/// The bytes under `key`.
#[must_use]
pub fn bytes(secret: &DynamicObject, key: &str) -> Option<Vec<u8>> {
    let value = secret.data.get("data")?.get(key)?;
    serde_json::from_value::<ByteString>(value.clone()).ok().map(|bytes| bytes.0)
}

/// The text under `key`, if it is UTF-8.
#[must_use]
pub fn text(secret: &DynamicObject, key: &str) -> Option<String> {
    String::from_utf8(bytes(secret, key)?).ok()
}
