//! How the API server judges a command that is not run.

/// The namespace of the manager. The API server checks no object of a namespace that does not exist.
pub(super) const INSTALLED_IN: &str = "capi-etcdadm-system";

/// The command as a dry run.
pub(super) fn as_dry_run(line: &str) -> String {
    let more = if line.contains(" apply --server-side") {
        // The bed has applied parts of it with another field manager.
        " --force-conflicts"
    } else if line.contains(" delete ") {
        // What a dry run has made is not there. What there is, is judged.
        " --ignore-not-found"
    } else if line.contains(" annotate ") {
        // The page is about an object that has no such annotation.
        " --overwrite"
    } else {
        ""
    };
    format!("{line} --dry-run=server{more}")
}
