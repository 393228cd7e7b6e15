//! While etcd's version changes, the status says that there is no backup from before the change.

use super::condition;
use crate::fixture::Story;
use api::conditions as c;
use api::names;

#[test]
fn a_version_that_is_rolled_out_says_that_there_is_no_backup_of_before() {
    let said = |story: &mut Story| condition(&story.settle(), c::MACHINES_UP_TO_DATE).message.clone();
    let mut story = Story::with_voters(3, 3);
    story.etcd().spec.infrastructure_template.name = "bigger".to_owned();
    let told = said(&mut story);
    assert!(told.starts_with("3 of 3 Machines do not match the spec"), "etcd stays the same: {told}");
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.17".to_owned());
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.17");
    let told = said(&mut story);
    let backup = "etcd goes from 3.6.16 to 3.6.17, and there is no backup from before this change: this provider does not make backups yet. ";
    assert!(told.starts_with(&format!("{backup}3 of 3 Machines do not match the spec")), "{told}");
}
