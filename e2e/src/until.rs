//! Waiting for something to become true.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// Time between two checks: short compared to anything worth waiting for, long compared to what one check costs.
const INTERVAL: Duration = Duration::from_millis(50);

/// A state that must not occur while a test waits, not even once. It ends [`until`], which treats every other error as
/// "not yet".
///
/// ```ignore
/// ensure!(voters >= 3, Broken(format!("{voters} voters")));
/// ```
#[derive(Debug)]
pub struct Broken(pub String);

impl Display for Broken {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Broken {}

/// Calls `check` again and again until it returns a value, and returns that.
///
/// `Ok(None)` means not yet. So does an error other than [`Broken`]: a server that is being restarted is a reason to
/// check again, and `bail!("phase is {phase}")` reports how far things are. If `timeout` passes, the error contains the
/// last of these errors.
///
/// # Errors
/// When `timeout` passes first, even while a check hangs. When a check returns [`Broken`]: immediately.
pub async fn until<T>(
    what: impl Display,
    timeout: Duration,
    mut check: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    let mut looks = 0_u32;
    let mut last = String::from("the first look has not come back");
    while let Some(left) = timeout.checked_sub(started.elapsed()) {
        match tokio::time::timeout(left, check()).await {
            Ok(Ok(Some(found))) => return Ok(found),
            Ok(Ok(None)) => "not yet".clone_into(&mut last),
            Ok(Err(error)) if error.is::<Broken>() => return Err(error.context(format!("while waiting: {what}"))),
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) if looks > 0 => last.push_str(" (and the look after that did not come back)"),
            Err(_) => (),
        }
        looks += 1;
        tokio::time::sleep(INTERVAL).await;
    }
    Err(anyhow!("not within {} s: {what}; last seen: {last} ({looks} looks)", timeout.as_secs_f32()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_on_the_way_is_not_the_end() {
        let mut looks = 0;
        let found = until("the third look", Duration::from_secs(5), async || {
            looks += 1;
            if looks < 3 { Err(anyhow!("look {looks}")) } else { Ok(Some(looks)) }
        });
        assert_eq!(found.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn what_must_not_be_seen_is_the_end() {
        let result = until("the end", Duration::from_secs(60), async || {
            anyhow::ensure!(false, Broken("two leaders".to_owned()));
            Ok(Some(()))
        });
        let message = format!("{:#}", result.await.unwrap_err());
        assert_eq!(message, "while waiting: the end: two leaders");
    }

    #[tokio::test]
    async fn the_timeout_says_what_was_seen_last() {
        let result =
            until("a phase", Duration::from_millis(120), async || Err::<Option<()>, _>(anyhow!("phase is Foo")));
        let message = result.await.unwrap_err().to_string();
        assert!(message.contains("a phase; last seen: phase is Foo"), "{message}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_cut_off() {
        let result = until("an answer", Duration::from_millis(50), async || {
            std::future::pending::<()>().await;
            Ok(Some(()))
        });
        assert!(result.await.unwrap_err().to_string().contains("has not come back"));
    }
}
