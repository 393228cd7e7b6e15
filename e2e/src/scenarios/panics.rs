//! Panics of scenarios, such as those of a wrong `unwrap` or index.

use anyhow::{Result, anyhow};
use futures::FutureExt;
use std::panic::AssertUnwindSafe;

/// Makes a panic of a scenario an error with its message, so that the caller can still collect evidence. What the
/// scenario held may be in a broken state and must not be used further.
///
/// # Errors
/// The scenario's, or its panic.
pub async fn caught<T>(scenario: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(scenario).catch_unwind().await {
        Ok(ended) => ended,
        Err(panic) => {
            let formatted = panic.downcast_ref::<String>().map(String::as_str);
            let words = formatted.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(anyhow!("it panicked: {}", words.unwrap_or("without a word")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn element(numbers: &[u32], index: usize) -> Result<u32> {
        tokio::task::yield_now().await;
        assert!(index < numbers.len(), "there is no {index}");
        Ok(numbers[index])
    }

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_words() {
        let error = caught(element(&[1], 1)).await.unwrap_err();
        assert_eq!(error.to_string(), "it panicked: there is no 1");
        assert_eq!(caught(element(&[1], 0)).await.unwrap(), 1);
    }
}
