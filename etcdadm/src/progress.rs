//! The messages for a person or for the machine's boot log: one line per step on standard error, with a timestamp.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Writes this program's messages of `level` and above to standard error.
///
/// Libraries log nothing unless `level` is `trace`: their messages would bury the few lines that matter.
pub fn start(level: LevelFilter) {
    let others = if level >= LevelFilter::TRACE { LevelFilter::DEBUG } else { LevelFilter::OFF };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false);
    let filter = Targets::new().with_default(others).with_target("etcdadm", level);
    // If this is called again, as tests do, the first subscriber stays.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}
