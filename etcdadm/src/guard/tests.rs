//! These tests run the script itself, with a shell script in place of etcd.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::settings::tests::example;
use crate::wal;

const FIRST: &str = "ETCD_NAME=etcd-0\nETCD_INITIAL_ADVERTISE_PEER_URLS=https://10.0.0.1:2380\n\
    ETCD_INITIAL_CLUSTER=etcd-0=https://10.0.0.1:2380\nETCD_INITIAL_CLUSTER_STATE=new\nETCD_INITIAL_CLUSTER_TOKEN=t\n";

fn first(paths: &Paths) -> String {
    format!("{FIRST}ETCD_DATA_DIR={}\n", paths.data_dir().display())
}

/// Writes a program through another process: if this process opened the file, a test that forks meanwhile would keep
/// the file busy.
pub(crate) fn write_program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut shell = Command::new("/bin/sh");
    let mut shell =
        shell.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

struct Machine {
    root: TempDir,
    paths: Paths,
}

impl Machine {
    /// etcd.env exists, and `etcd` only prints that it runs.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let paths = example().paths(root.path());
        files::write(&paths.etcd_env(), first(&paths).as_bytes(), 0o600).unwrap();
        write_program(&paths.program("etcd"), "#!/bin/sh\necho runs\n");
        write_program(&paths.guard(), &render(&paths));
        std::fs::create_dir_all(paths.data_dir()).unwrap();
        Self { root, paths }
    }

    fn guard(&self, verb: &str) -> Output {
        Command::new(self.paths.guard()).arg(verb).output().unwrap()
    }

    /// Whether a start became etcd. Checks that a refusal is reported everywhere.
    fn starts(&self) -> bool {
        let output = self.guard("start");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => {
                assert_eq!(output.stdout, b"runs\n");
                assert!(!self.paths.refusal().exists(), "an old refusal stays");
                true
            }
            Some(78) => {
                assert_eq!(output.stdout, b"");
                let text = std::fs::read_to_string(self.paths.refusal()).unwrap();
                assert_eq!(told, format!("etcd is not started: {text}"));
                assert!(text.contains("etcdadm join"), "it says what to do: {text}");
                false
            }
            other => panic!("{other:?}: {told}"),
        }
    }

    /// Does what etcd does when it first runs.
    fn write_log(&self) {
        let log = wal::tests::segment(wal::Owner { cluster_id: 1, member_id: 2 });
        files::write(&self.paths.wal_dir().join("0000000000000000-0000000000000000.wal"), &log, 0o600).unwrap();
    }

    fn copy_of_data(&self) -> PathBuf {
        let copy = self.root.path().join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        assert!(Command::new("cp").arg("-a").args([self.paths.data_dir(), &copy]).status().unwrap().success());
        copy
    }

    fn put_data(&self, copy: &Path) {
        self.lose_data();
        std::fs::remove_dir(self.paths.data_dir()).unwrap();
        assert!(Command::new("cp").arg("-a").args([copy, self.paths.data_dir()]).status().unwrap().success());
    }

    fn lose_data(&self) {
        std::fs::remove_dir_all(self.paths.data_dir()).unwrap();
        std::fs::create_dir(self.paths.data_dir()).unwrap();
    }

    fn data(&self) -> Data {
        data(&self.paths).unwrap()
    }
}

#[test]
fn a_member_starts_stops_and_starts_again() {
    let machine = Machine::new();
    assert_eq!(machine.data(), Data::Blank);
    assert!(machine.starts());
    // Killed before it made a log: nothing is lost.
    assert_eq!(machine.data(), Data::Blank);
    assert!(machine.starts());
    machine.write_log();
    for _ in 0..2 {
        machine.guard("stopped");
        assert_eq!(machine.data(), Data::Present);
        assert!(machine.starts());
        assert!(machine.starts(), "as after kill -9");
    }
    let settings = std::fs::read_to_string(machine.paths.etcd_env()).unwrap();
    let data = machine.paths.data_dir();
    assert_eq!(
        settings,
        format!(
            "ETCD_NAME=etcd-0\nETCD_INITIAL_ADVERTISE_PEER_URLS=https://10.0.0.1:2380\nETCD_DATA_DIR={}\n\
             ETCD_INITIAL_CLUSTER=etcd-0=https://10.0.0.1:2380\nETCD_INITIAL_CLUSTER_STATE=existing\n",
            data.display()
        )
    );
    assert_eq!(std::fs::metadata(machine.paths.etcd_env()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[rstest]
#[case::before_a_log_was_ever_seen(false)]
#[case::later(true)]
fn a_lost_disk_never_starts_blank(#[case] stopped_well: bool) {
    let machine = Machine::new();
    assert!(machine.starts());
    machine.write_log();
    if stopped_well {
        machine.guard("stopped");
    }
    machine.lose_data();
    assert_eq!(machine.data(), Data::Lost);
    assert!(!machine.starts());
    assert!(!machine.starts());
    machine.guard("stopped");
    assert!(!machine.starts(), "marking what is not there changes nothing");
}

#[test]
fn only_the_log_lost_is_a_loss() {
    let machine = Machine::new();
    assert!(machine.starts());
    machine.write_log();
    machine.guard("stopped");
    std::fs::remove_dir_all(machine.paths.wal_dir()).unwrap();
    assert_eq!(machine.data(), Data::Lost);
    assert!(!machine.starts());
    // The epochs forgotten as well: the settings still say that there was a log.
    forget(&machine.paths).unwrap();
    assert_eq!(machine.data(), Data::Forgotten);
    assert!(!machine.starts());
}

#[test]
fn an_older_copy_is_refused_and_the_latest_data_is_not() {
    let machine = Machine::new();
    assert!(machine.starts());
    machine.write_log();
    let before_the_stop = machine.root.path().join("before-the-stop");
    std::fs::rename(machine.copy_of_data(), &before_the_stop).unwrap();
    machine.guard("stopped");
    let latest = machine.root.path().join("latest");
    std::fs::rename(machine.copy_of_data(), &latest).unwrap();

    machine.put_data(&before_the_stop);
    assert_eq!(machine.data(), Data::Outdated);
    assert!(!machine.starts(), "etcd may have written more before it was stopped");
    machine.put_data(&latest);
    assert!(machine.starts(), "the data of the last stop is the latest");
    machine.guard("stopped");
    machine.put_data(&latest);
    assert_eq!(machine.data(), Data::Outdated);
    assert!(!machine.starts());
    machine.guard("stopped");
    assert!(!machine.starts(), "a refused start must not mark the older data");

    // A person has confirmed that the data is the latest.
    forget(&machine.paths).unwrap();
    assert_eq!(machine.data(), Data::Present);
    assert!(machine.starts());
    machine.guard("stopped");
    assert!(machine.starts());
}

#[test]
fn data_without_epochs_is_taken_over_once() {
    let machine = Machine::new();
    machine.write_log();
    assert_eq!(machine.data(), Data::Present);
    let copy = machine.copy_of_data();
    assert!(machine.starts());
    machine.put_data(&copy);
    assert_eq!(machine.data(), Data::Outdated);
    assert!(!machine.starts(), "restored without the epoch");
}

/// Kills the script with SIGKILL before the n-th program that it runs, for every n: a start never refuses what is left,
/// and always refuses an older copy.
#[rstest]
#[case::start_with_log("start", true)]
#[case::first_start("start", false)]
#[case::stop("stopped", true)]
fn killed_between_any_two_steps(#[case] verb: &str, #[case] log: bool) {
    for step in 1.. {
        let machine = Machine::new();
        let mut older = None;
        if log {
            assert!(machine.starts());
            machine.write_log();
            older = Some(machine.copy_of_data());
            machine.guard("stopped");
            assert!(machine.starts());
        }
        // Each program that the script runs is a counting script. The script whose turn it is kills the shell instead.
        let shims = machine.root.path().join("shims");
        std::fs::create_dir(&shims).unwrap();
        for program in ["sync", "mv", "cat", "mkdir", "grep", "sed", "rm"] {
            let shim = format!(
                "#!/bin/sh\nPATH=/usr/bin:/bin\necho x >>{0}/count\n[ $(wc -l <{0}/count) -ge {step} ] && kill -9 -$(cat {0}/group)\nexec {program} \"$@\"\n",
                shims.display()
            );
            write_program(&shims.join(program), &shim);
        }
        let mut guard = Command::new("/bin/sh");
        guard.args(["-c", "echo $$ >$SHIMS/group; exec \"$0\" \"$1\""]).arg(machine.paths.guard()).arg(verb);
        guard.env("SHIMS", &shims).env("PATH", format!("{}:/usr/bin:/bin", shims.display())).process_group(0);
        let finished = guard.output().unwrap().status.code().is_some();
        assert_ne!(machine.data(), Data::Lost, "killed before step {step}");
        assert_ne!(machine.data(), Data::Outdated, "killed before step {step}");
        if step % 2 == 0 {
            machine.guard("stopped");
        }
        assert!(machine.starts(), "killed before step {step}");
        if let Some(older) = older {
            machine.put_data(&older);
            assert_eq!(machine.data(), Data::Outdated, "killed before step {step}");
            assert!(!machine.starts());
        }
        assert!(step < 60, "the script never ends");
        if finished {
            assert!(step > 5, "the script ran only {step} programs: nothing was tried");
            return;
        }
    }
}

/// An etcd.env that is written from an unreadable one would have no certificates and no addresses.
#[rstest]
#[case("grep")]
#[case("sed")]
fn settings_that_cannot_be_read_are_left(#[case] broken: &str) {
    let machine = Machine::new();
    assert!(machine.starts());
    machine.write_log();
    let shims = machine.root.path().join("shims");
    write_program(&shims.join(broken), "#!/bin/sh\nexit 2\n");
    let path = format!("{}:/usr/bin:/bin", shims.display());
    for verb in ["stopped", "start"] {
        Command::new(machine.paths.guard()).arg(verb).env("PATH", &path).output().unwrap();
        assert_eq!(std::fs::read_to_string(machine.paths.etcd_env()).unwrap(), first(&machine.paths), "{verb}");
    }
}

/// With its own defaults, etcd would start a new cluster in a directory that the guard does not check.
#[test]
fn settings_without_the_data_directory_start_nothing() {
    let machine = Machine::new();
    let another = format!("{FIRST}ETCD_DATA_DIR=/mnt/new\n");
    for settings in ["", FIRST, &another] {
        files::write(&machine.paths.etcd_env(), settings.as_bytes(), 0o600).unwrap();
        assert!(!machine.starts(), "{settings}");
    }
    files::write(&machine.paths.etcd_env(), first(&machine.paths).as_bytes(), 0o600).unwrap();
    assert!(machine.starts());
    machine.write_log();
    files::write(&machine.paths.etcd_env(), another.as_bytes(), 0o600).unwrap();
    assert!(!machine.starts(), "the data was moved, and the guard knows another directory");
}

#[test]
fn a_disk_that_takes_no_mark_does_not_stop_a_member_that_has_its_data() {
    let machine = Machine::new();
    assert!(machine.starts());
    machine.write_log();
    machine.guard("stopped");
    let shims = machine.root.path().join("shims");
    write_program(&shims.join("sync"), "#!/bin/sh\nexit 1\n");
    let path = format!("{}:/usr/bin:/bin", shims.display());
    let guard = |verb| Command::new(machine.paths.guard()).arg(verb).env("PATH", &path).output().unwrap();
    let told = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let start = || guard("start");

    // All these runs share one epoch, and the guard reports that.
    assert_eq!(start().stdout, b"runs\n");
    let older = machine.copy_of_data();
    for output in [guard("stopped"), start()] {
        for named in ["is not recognized as old", "etcd/epoch", "etcdadm-epoch", "Make room"] {
            assert!(told(&output).contains(named), "{}", told(&output));
        }
        assert_eq!(output.status.code(), Some(0));
    }
    machine.put_data(&older);
    assert_eq!(machine.data(), Data::Present, "as the documentation says");

    // A start that can write again ends this state.
    let written = machine.guard("start");
    assert_eq!((written.stdout.as_slice(), told(&written).as_str()), (&b"runs\n"[..], ""));
    machine.put_data(&older);
    assert_eq!(start().status.code(), Some(78));
    machine.lose_data();
    assert_eq!(start().status.code(), Some(78));
}
