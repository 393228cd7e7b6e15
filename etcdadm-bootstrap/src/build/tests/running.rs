//! Runs the commands of documents as cloud-init and the docker provider would.

use super::*;

/// Does what the docker provider does with the first file and the first command, in a separate directory.
#[test]
fn certificate_and_key_arrive_on_the_docker_provider_as_they_are() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    let document = Document::read(&render_init(&docker(EtcdadmConfigSpec::default())).unwrap());
    assert_eq!(document.write_files.len(), 1, "each costs time");
    let state = directory.path().join("run/cluster-api");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("etcd-ca.pem"), document.content("/run/cluster-api/etcd-ca.pem")).unwrap();
    let command =
        document.runcmd[0].replace("/run/", &format!("{root}/run/")).replace("/etc/", &format!("{root}/etc/"));
    assert!(command.starts_with("echo started > "), "the marker comes first: {command}");
    assert!(std::process::Command::new("/bin/sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    let pki = directory.path().join("etc/etcd/pki");
    for (name, content, mode) in [("ca.crt", CERT, 0o640), ("ca.key", KEY, 0o600)] {
        let file = pki.join(name);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, mode, "{name}");
    }
    assert!(state.join("capd.bootstrap.started").exists() && !state.join("etcd-ca.pem").exists());
}

/// Runs what cloud-init makes of a spec's commands, with a stub for etcdadm. Returns what it printed, and whether it
/// succeeded.
fn run_like_cloud_init(etcdadm: &str, spec: &EtcdadmConfigSpec) -> (String, bool) {
    let document = Document::read(&render_init(spec).unwrap());
    let commands: Vec<String> = document.runcmd.iter().map(|c| c.replace(SUCCESS_SENTINEL, "/dev/null")).collect();
    let script = format!("etcdadm() {{ {etcdadm}; }}\n{}\n", commands.join("\n"));
    let out = std::process::Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
    // Not stdout: a command that swallows the next one may print it.
    (String::from_utf8_lossy(&out.stderr).into_owned(), out.status.success())
}

#[test]
fn a_command_that_fails_or_is_cut_short_keeps_etcdadm_from_running() {
    let run = |pre: &[&str]| {
        let spec = EtcdadmConfigSpec { pre_etcdadm_commands: strings(pre), ..EtcdadmConfigSpec::default() };
        let (printed, success) = run_like_cloud_init("echo RAN >&2", &spec);
        (printed.contains("RAN"), success)
    };
    assert_eq!(run(&["true", "# a note", "cd /; X=1", "test \"$X$PWD\" = 1/"]), (true, true));
    for bad in ["false", "echo 'open", "echo \\", "true ||", "cat <<END\nx", "if true; then", "(exit 3)", "a=$(false)"]
    {
        assert_eq!(run(&[bad]), (false, false), "{bad}");
    }
}

#[test]
fn nothing_runs_after_etcdadm_has_failed() {
    let spec = EtcdadmConfigSpec { post_etcdadm_commands: strings(&["echo POST >&2"]), ..EtcdadmConfigSpec::default() };
    assert_eq!(run_like_cloud_init("true", &spec), ("POST\n".to_owned(), true));
    assert_eq!(run_like_cloud_init("false", &spec), (String::new(), false));
}
