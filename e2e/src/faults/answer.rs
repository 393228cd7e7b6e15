//! Answers in the API server's place.

use super::relay::{Body, whole};
use anyhow::{Context, Result};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

/// The API server's answer with this HTTP status.
///
/// # Errors
/// When there is no such status.
pub(super) fn status(code: u16) -> Result<Response<Body>> {
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        _ => "Unknown",
    };
    let status = json!({
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": format!("the test bed answers {code}"),
        "code": code,
    });
    let mut answer = Response::builder()
        .status(StatusCode::from_u16(code).with_context(|| format!("HTTP status {code}"))?)
        .header(CONTENT_TYPE, "application/json");
    if code == 429 {
        answer = answer.header(RETRY_AFTER, "1");
    }
    answer.body(whole(status.to_string())).context("make an answer")
}
