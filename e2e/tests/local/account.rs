//! Which Machines our manager has made and deleted, by the API server's audit log.

use anyhow::{Result, ensure};
use e2e::bed::{Bed, ClusterHandle};
use e2e::plane::{Mark, users};
use std::collections::BTreeSet;

/// Checks that our manager has made this many Machines.
pub(crate) fn made(bed: &Bed, handle: &ClusterHandle, mark: Mark, wanted: usize) -> Result<()> {
    let requests = bed.plane.requests_since(mark)?.user(users::PROVIDER).verb("create").resource("machines");
    let made = requests.filter(|request| request.namespace == handle.namespace && request.code == 201);
    ensure!(made.len() == wanted, "{}: {wanted} Machines were to be made:\n{made}", handle.namespace);
    Ok(())
}

/// Checks that our manager has deleted these Machines, each once, and no others.
pub(crate) fn deleted(bed: &Bed, handle: &ClusterHandle, mark: Mark, wanted: &[String]) -> Result<()> {
    let mut deleted = deletions(bed, handle, mark)?;
    deleted.sort();
    ensure!(deleted == wanted, "{}: deleted were {deleted:?}, wanted {wanted:?}", handle.namespace);
    Ok(())
}

/// Checks that our manager has deleted these Machines and no others, and has made this many. It may have deleted a
/// Machine again, because it did not see yet that the Machine was being deleted, or did not get the answer.
pub(crate) fn changed_machines(
    bed: &Bed,
    handle: &ClusterHandle,
    mark: Mark,
    deleted: &[String],
    new: usize,
) -> Result<()> {
    let found: BTreeSet<String> = deletions(bed, handle, mark)?.into_iter().collect();
    let wanted: BTreeSet<String> = deleted.iter().cloned().collect();
    ensure!(found == wanted, "{}: deleted were {found:?}, wanted {wanted:?}", handle.namespace);
    made(bed, handle, mark, new)
}

/// The name of the Machine in each deletion that our manager has sent and the API server has carried out.
fn deletions(bed: &Bed, handle: &ClusterHandle, mark: Mark) -> Result<Vec<String>> {
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER).done_in(&handle.namespace);
    Ok(ours.verb("delete").resource("machines").iter().map(|request| request.name.clone()).collect())
}
