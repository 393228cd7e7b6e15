//! Flags decide what is logged and in which form. What is logged can be changed while the process runs.

use crate::flags::{Flags, LogFormat, filter_of_verbosity};
use anyhow::{Context, anyhow};
use std::sync::Arc;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

/// Sets what is logged from now on.
#[derive(Clone)]
pub struct LogLevel(Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>);

impl LogLevel {
    /// Passes filters to `set` and sets nothing else.
    #[cfg(test)]
    pub(crate) fn seen_by(set: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |filter| {
            set(filter.to_string());
            Ok(())
        }))
    }

    fn of<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        Self(Arc::new(move |filter| handle.reload(filter).map_err(|error| error.to_string())))
    }

    /// Sets what is logged, by a number as for `--v`, or by a filter as for `--log-level`. Returns the filter.
    ///
    /// # Errors
    /// If it is neither.
    pub fn set(&self, wanted: &str) -> Result<String, String> {
        let filter = wanted.parse().map_or_else(|_| wanted.to_owned(), filter_of_verbosity);
        (self.0)(parse(&filter)?)?;
        Ok(filter)
    }
}

/// Logs to standard error from now on.
///
/// # Errors
/// If the flags have no valid filter.
pub fn start(flags: &Flags) -> anyhow::Result<LogLevel> {
    let filter = parse(&flags.log_filter()).map_err(|why| anyhow!(why)).context("--log-level")?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    Ok(match flags.logs() {
        LogFormat::Json => {
            let logs = logs.json().flatten_event(true).with_filter_reloading();
            let level = LogLevel::of(logs.reload_handle());
            logs.init();
            level
        }
        LogFormat::Text => {
            let logs = logs.with_filter_reloading();
            let level = LogLevel::of(logs.reload_handle());
            logs.init();
            level
        }
    })
}

/// Reads a filter. It refuses a word that is not a level: the word would name a part of the program, and silence all
/// others.
fn parse(filter: &str) -> Result<EnvFilter, String> {
    let expected = "expected a number such as 4, a level such as debug, or a filter such as info,kube=debug";
    let mut parts = filter.split(',').map(str::trim);
    let known = parts.all(|part| part.contains('=') || (!part.is_empty() && part.parse::<LevelFilter>().is_ok()));
    let read = known.then(|| EnvFilter::try_new(filter).ok()).flatten();
    read.ok_or_else(|| format!("{filter:?}: {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_logged_follows_what_is_set() {
        let written = Written::default();
        let writer = written.clone();
        let logs = tracing_subscriber::fmt().with_env_filter(parse("info").unwrap());
        let logs = logs.with_writer(move || writer.clone()).with_filter_reloading();
        let level = LogLevel::of(logs.reload_handle());
        tracing::subscriber::with_default(logs.finish(), || {
            tracing::debug!("one");
            assert!(level.set("4").unwrap().contains("manager=debug"));
            tracing::debug!("two");
            assert_eq!(level.set("warn,kube=debug").unwrap(), "warn,kube=debug");
            tracing::debug!("three");
            level.set("debgu").unwrap_err();
            tracing::warn!("four");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let found: Vec<&str> = ["one", "two", "three", "four"].into_iter().filter(|word| text.contains(word)).collect();
        assert_eq!(found, ["two", "four"], "{text}");
    }

    #[test]
    fn what_is_not_a_filter_is_refused_with_what_would_be_right() {
        for wrong in ["", "debgu", "info,debgu", "kube=loud", "-1"] {
            let why = parse(wrong).unwrap_err();
            assert!(why.contains("expected a number such as 4"), "{why}");
        }
        for right in ["off", "info", "INFO", "info,kube=debug", "kube=trace"] {
            parse(right).unwrap();
        }
    }
}
