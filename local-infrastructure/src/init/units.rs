//! Units: those that start at boot, and what their files say about restarts.

use super::children::Children;
use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};

/// Directory of a machine's own units, and of the links of enabled units.
const OWN_UNITS: &str = "/etc/systemd/system";
/// Where units are searched for. The first match counts.
const UNIT_PATH: [&str; 4] =
    [OWN_UNITS, "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];

/// Starts the enabled services. `systemctl` puts them into the order that the units require.
pub(super) async fn start_enabled(children: &Children) {
    let enabled = enabled(Path::new(OWN_UNITS));
    if !enabled.is_empty() {
        println!("Starting {enabled:?}.");
        if let Err(error) = children.run(Command::new("systemctl").arg("start").args(&enabled)).await {
            println!("systemctl cannot be started: {error}");
        }
    }
}

/// The services that some target wants.
fn enabled(units: &Path) -> BTreeSet<String> {
    let names = |directory: &Path| -> Vec<String> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    };
    names(units)
        .into_iter()
        .filter(|name| name.ends_with(".target.wants"))
        .flat_map(|name| names(&units.join(name)))
        .filter(|name| name.ends_with(".service"))
        .collect()
}

/// When a service is restarted after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Never,
    Always,
    OnSuccess,
    OnFailure,
    OnAbnormal,
}

/// What a unit's file says about restarts. systemd's defaults apply otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) restart: Restart,
    /// Exit statuses after which it is never started again.
    pub(super) final_statuses: Vec<i32>,
    /// Commands to run after the service has ended, each a program with its arguments.
    pub(super) stop_post: Vec<Vec<String>>,
    /// The time between the end of the process and its restart.
    pub(super) delay: Duration,
    /// At most `limit_burst` starts are allowed within this time. Zero: no limit.
    pub(super) limit_interval: Duration,
    pub(super) limit_burst: usize,
}

impl Policy {
    /// The policy of a unit, with its drop-ins.
    pub(super) fn of(unit: &str) -> Self {
        let mut text = String::new();
        if let Some(file) = UNIT_PATH.iter().find_map(|path| fs::read_to_string(Path::new(path).join(unit)).ok()) {
            text.push_str(&file);
        }
        for path in UNIT_PATH.iter().rev() {
            let directory = Path::new(path).join(format!("{unit}.d"));
            let Ok(entries) = fs::read_dir(directory) else { continue };
            let files: BTreeSet<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            for file in files.into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "conf")) {
                text.push('\n');
                text.push_str(&fs::read_to_string(file).unwrap_or_default());
            }
        }
        Self::parse(&text)
    }

    /// The last value of a key counts, so that the text of drop-ins can be appended.
    fn parse(text: &str) -> Self {
        let mut policy = Self {
            restart: Restart::Never,
            final_statuses: Vec::new(),
            stop_post: Vec::new(),
            delay: Duration::from_millis(100),
            limit_interval: Duration::from_secs(10),
            limit_burst: 5,
        };
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let value = value.trim();
            match key.trim() {
                "Restart" => {
                    policy.restart = match value {
                        "always" => Restart::Always,
                        "on-success" => Restart::OnSuccess,
                        "on-failure" => Restart::OnFailure,
                        "on-abnormal" | "on-abort" => Restart::OnAbnormal,
                        _ => Restart::Never,
                    }
                }
                // Lists: each line adds to them, an empty one clears them.
                "RestartPreventExitStatus" if value.is_empty() => policy.final_statuses.clear(),
                "RestartPreventExitStatus" => {
                    policy.final_statuses.extend(value.split_whitespace().filter_map(|word| word.parse::<i32>().ok()));
                }
                "ExecStopPost" if value.is_empty() => policy.stop_post.clear(),
                "ExecStopPost" => {
                    let command = value.trim_start_matches(['-', '@', ':', '+', '!']);
                    policy.stop_post.push(command.split_whitespace().map(str::to_owned).collect());
                }
                "RestartSec" => policy.delay = time_span(value).unwrap_or(policy.delay),
                "StartLimitIntervalSec" | "StartLimitInterval" => {
                    policy.limit_interval = time_span(value).unwrap_or(policy.limit_interval);
                }
                "StartLimitBurst" => policy.limit_burst = value.parse().unwrap_or(policy.limit_burst),
                _ => {}
            }
        }
        policy
    }
}

/// A time span in the format of units: `5`, `100ms`, `1min 30s`.
fn time_span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let after = after.trim_start();
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit {
            "us" | "usec" => 1e-6,
            "ms" | "msec" => 1e-3,
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3600.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        rest = after.trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("5", Some(5_000))]
    #[case("100ms", Some(100))]
    #[case("1min 30s", Some(90_000))]
    #[case("0", Some(0))]
    #[case("2.5s", Some(2_500))]
    #[case("", None)]
    #[case("soon", None)]
    #[case("5 fortnights", None)]
    fn times_are_read_as_units_write_them(#[case] text: &str, #[case] milliseconds: Option<u64>) {
        assert_eq!(time_span(text), milliseconds.map(Duration::from_millis));
    }

    #[test]
    fn the_last_value_counts() {
        let policy = Policy::parse(
            "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=no\nRestartSec=5s\n[Service]\nRestart=always\n",
        );
        assert_eq!(policy.restart, Restart::Always);
        assert_eq!(policy.delay, Duration::from_secs(5));
        assert_eq!(policy.limit_interval, Duration::ZERO);
        assert_eq!(Policy::parse("").restart, Restart::Never);
    }

    #[test]
    fn lists_add_up_and_begin_again_after_an_empty_line() {
        let policy = Policy::parse(
            "[Service]\nRestartPreventExitStatus=1 SIGKILL\nRestartPreventExitStatus=\nRestartPreventExitStatus=78\n\
             ExecStopPost=-/opt/bin/etcd-guard.sh stopped\n",
        );
        assert_eq!(policy.final_statuses, [78]);
        assert_eq!(policy.stop_post, [["/opt/bin/etcd-guard.sh", "stopped"]]);
    }

    #[test]
    fn enabled_services_are_those_that_a_target_wants() {
        let units = tempfile::tempdir().expect("a directory");
        let wants = units.path().join("multi-user.target.wants");
        fs::create_dir(&wants).expect("created");
        for name in ["etcd.service", "other.timer"] {
            fs::write(wants.join(name), "").expect("written");
        }
        fs::write(units.path().join("not-enabled.service"), "").expect("written");
        assert_eq!(enabled(units.path()), BTreeSet::from(["etcd.service".to_owned()]));
    }
}
