//! Version changes take legal paths only (rule 7). A version that is not legal for the members is not pinned: new
//! members get the version before, and everything else goes on.

use super::View;
use crate::alarms::{NO_SPACE, raised};
use crate::build;
use crate::observation::Probe;
use crate::roster::Seat;
use api::version::EtcdVersion;

/// The lowest versions that every member has to run before a member of the next minor version joins. Source: etcd's
/// upgrade guides, and etcd#19557 and #20793 for 3.5.
static FLOORS: [EtcdVersion; 2] = [EtcdVersion::new(3, 5, 32), EtcdVersion::new(3, 6, 11)];

/// etcd's quota if none is given (`DefaultQuotaBytes` in etcd's server/storage/quota.go, 3.5 to 3.7).
const DEFAULT_QUOTA_BYTES: i64 = 2 << 30;

/// As many stops of a path are named. A version that is mistyped may be far away.
const NAMED: usize = 4;

/// Why no rollout to the spec's version, or with the spec's settings, may go on, and what is possible instead. `None`: it
/// may.
pub(crate) fn refusal(view: &View<'_>) -> Option<String> {
    let spec = view.observation.etcd.spec.etcdadm_config_spec.etcd_version();
    let wanted = spec.unwrap_or(build::version(&view.observation.etcd)).parse::<EtcdVersion>().ok()?;
    // Without a version in the spec, the one in force stays.
    let Some(why) = spec.and_then(|_| why_not(view, &wanted)) else {
        let setting = wrong_flag(view, &wanted).or_else(|| small_quota(view))?;
        let nor = if why_none_is_made(view).is_some() { ", and no Machine is made" } else { "" };
        return Some(format!("{setting}. Until then, no rollout goes on{nor}"));
    };
    let all = running(view, |_| true);
    let (lowest, highest) = (all.iter().min()?, all.iter().max()?);
    let runs = if lowest == highest { lowest.to_string() } else { format!("{lowest} to {highest}") };
    let then = match why_none_is_made(view) {
        None => "new members get the version before".to_owned(),
        Some(why) => format!("no Machine is made: it would get the version before, and {why}"),
    };
    Some(format!("the members run etcd {runs}, and the spec says {wanted}: {why}. Until the spec changes, {then}"))
}

/// Why no Machine is made now: the version that it gets is not supported, or does not have a flag of the spec, so it
/// would never start etcd. Or its quota is not larger than the database, so it would stop all writes, unless etcd
/// refuses them already.
pub(super) fn why_none_is_made(view: &View<'_>) -> Option<String> {
    let is_full = || raised(&view.roster).is_some_and(|alarms| alarms.iter().any(|alarm| alarm.kind == NO_SPACE));
    let version = build::version(&view.observation.etcd).parse().ok()?;
    wrong_version(&version).or_else(|| wrong_flag(view, &version)).or_else(|| small_quota(view).filter(|_| !is_full()))
}

/// Why no Machine is made of the version that is in force: an EtcdadmConfig with it is refused.
fn wrong_version(version: &EtcdVersion) -> Option<String> {
    (!version.is_supported()).then(|| {
        format!("etcd {version} is not supported. Set spec.etcdadmConfigSpec.version to another release of the same minor version")
    })
}

/// Which of the spec's flags is wrong, or is not one of a version. No machine would start etcd with it.
fn wrong_flag(view: &View<'_>, version: &EtcdVersion) -> Option<String> {
    running(view, |_| true).first()?;
    let settings = view.observation.etcd.spec.etcdadm_config_spec.etcd.as_ref()?;
    let (field, why) = settings.check(version).err()?;
    Some(format!("spec.etcdadmConfigSpec.etcd.{field}: {why}"))
}

/// Why the spec's quota is too small. A new member copies the database. If its quota is smaller, it raises the alarm
/// NOSPACE with the first write, and from then on no member takes a write. etcd compares the quota with the size of the
/// file (`quotaApplierV3` in etcd's server/etcdserver, 3.5 to 3.7).
pub(super) fn small_quota(view: &View<'_>) -> Option<String> {
    let settings = view.observation.etcd.spec.etcdadm_config_spec.etcd.as_ref();
    let quota = settings.and_then(|settings| settings.quota_backend_bytes);
    let (quota, by_default) = quota.map_or((DEFAULT_QUOTA_BYTES, ", etcd's default,"), |quota| (quota, ""));
    let well = view.roster.voters().filter(|seat| seat.is_well());
    let sizes = well.filter_map(|seat| seat.probe.and_then(Probe::report)).map(|report| report.database_size);
    let size = sizes.max().filter(|size| *size >= quota)?;
    Some(format!(
        "spec.etcdadmConfigSpec.etcd.quotaBackendBytes: {quota}{by_default} is not more than the database has: {size} bytes on disk. With a new member, etcd would refuse all writes. Set a larger value, or compact etcd and defragment every member (etcdctl defrag --cluster --command-timeout=10m)"
    ))
}

/// Whether a member of a version may join the present members.
pub(super) fn may_join(view: &View<'_>, version: &str) -> bool {
    version.parse().map_or(true, |version| why_not(view, &version).is_none())
}

/// The newest version of the members that stay, if another member of that version may join them.
pub(super) fn newest(view: &View<'_>) -> Option<String> {
    let newest = running(view, stays).into_iter().max()?;
    why_not(view, &newest).is_none().then(|| newest.to_string())
}

/// Why no member of a version may join the present members.
fn why_not(view: &View<'_>, wanted: &EtcdVersion) -> Option<String> {
    let all = running(view, |_| true);
    let lowest = all.iter().min()?;
    let has_limit = view.observation.recorded_learner_limit() != "1";
    let stay = running(view, stays);
    explain(wanted, lowest, stay.iter().min().unwrap_or(lowest), has_limit)
}

/// Whether a member stays, as far as is known. A member that has failed leaves etcd before its replacement joins. When
/// the last member of a minor version has left, etcd raises its cluster version, and from then on no member of that
/// minor version can join.
fn stays(seat: &Seat<'_>) -> bool {
    !seat.is_leaving() && !seat.is_unhealthy()
}

/// Whether the version of every voter is known. Until then, no other version is recorded.
pub(super) fn is_known(view: &View<'_>) -> bool {
    let voters = view.roster.voters().count();
    view.roster.is_listed() && running(view, |seat| seat.is_voter()).len() == voters
}

/// Whether a new member joins with a vote. etcdadm lets it do so if a member runs a version that may lose the promotion
/// of a learner.
pub(super) fn joins_as_voter(view: &View<'_>) -> bool {
    let new = build::version(&view.observation.etcd).parse::<EtcdVersion>().ok();
    running(view, |_| true).iter().chain(&new).min().is_some_and(|lowest| !lowest.promotes_learners())
}

/// Why a version is not legal. `lowest`: the lowest version of all members. `stays`: the lowest version of the members
/// that stay, because an earlier version goes with the others.
fn explain(wanted: &EtcdVersion, lowest: &EtcdVersion, stays: &EtcdVersion, has_limit: bool) -> Option<String> {
    if line(wanted) < line(stays) {
        let (major, minor) = line(stays);
        return Some(format!("etcd does not go back to an earlier minor version; stay with {major}.{minor}"));
    }
    if has_limit && !wanted.has_max_learners() {
        return Some(
            "the members take several learners at a time, which that version cannot do; stay with the one before"
                .into(),
        );
    }
    let stops = stops(wanted, lowest);
    let (first, others) = stops.split_first()?;
    let mut then: String = others.iter().take(NAMED - 1).map(|stop| format!(", then to {stop}")).collect();
    if stops.len() > NAMED {
        then.push_str(", and so on");
    }
    let (major, minor) = line(lowest);
    let is_next = line(wanted) == (major, minor.saturating_add(1));
    let rule = if is_next { "" } else { "etcd goes up one minor version at a time; " };
    Some(format!("{rule}go to {first} first{then}"))
}

/// The stops on the legal path from a version to another one, in words: as many as are named, and one more if there are
/// more. None: the way is direct.
fn stops(wanted: &EtcdVersion, from: &EtcdVersion) -> Vec<String> {
    let (major, minor) = line(from);
    // Nobody knows the path to another major version, so it leads to the next minor one.
    let last = if wanted.major() == major { wanted.minor() } else { minor.saturating_add(2) };
    let stop = |at| match FLOORS.iter().find(|floor| line(floor) == (major, at)) {
        Some(floor) => (from < floor).then(|| format!("{floor} or later")),
        None => (at > minor).then(|| format!("{major}.{at}")),
    };
    (minor..last).filter_map(stop).take(NAMED + 1).collect()
}

/// The major and the minor version.
fn line(version: &EtcdVersion) -> (u64, u64) {
    (version.major(), version.minor())
}

/// The versions of members, as far as they are known.
fn running(view: &View<'_>, counts: impl Fn(&Seat<'_>) -> bool) -> Vec<EtcdVersion> {
    let version = |(id, seat): (u64, &Seat<'_>)| -> Option<EtcdVersion> {
        let reported = seat.probe.and_then(Probe::report).filter(|report| report.member_id == id);
        let recorded = || view.observation.recorded(id).map(|member| member.version.clone());
        reported.map(|report| report.version.clone()).or_else(recorded)?.parse().ok()
    };
    view.roster.members().filter(|(_, seat)| counts(seat)).filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> EtcdVersion {
        text.parse().unwrap()
    }

    #[test]
    fn versions_take_legal_paths() {
        for (wanted, lowest, says) in [
            ("3.6.17", "3.6.16", ""),
            ("3.6.10", "3.6.16", ""),
            ("3.6.16", "3.5.32", ""),
            ("3.6.16", "3.5.31", "go to 3.5.32 or later first"),
            ("3.6.16", "3.4.40", "one minor version at a time; go to 3.5.32 or later first"),
            ("3.5.31", "3.5.9", ""),
            ("3.7.0", "3.6.11", ""),
            ("3.7.0", "3.6.10", "go to 3.6.11 or later first"),
            ("3.7.0", "3.5.32", "one minor version at a time; go to 3.6.11 or later first"),
            ("3.7.0", "3.5.31", "one minor version at a time; go to 3.5.32 or later first, then to 3.6.11 or later"),
            ("3.8.0", "3.5.32", "one minor version at a time; go to 3.6.11 or later first, then to 3.7"),
            ("3.5.32", "3.4.40", ""),
            ("3.5.32", "3.6.16", "stay with 3.6"),
            ("4.0.0", "3.6.16", "one minor version at a time; go to 3.7 first"),
            ("3.11.0", "3.6.16", "go to 3.7 first, then to 3.8, then to 3.9, then to 3.10"),
            ("3.999999999.0", "3.6.16", "go to 3.7 first, then to 3.8, then to 3.9, then to 3.10, and so on"),
        ] {
            let why = explain(&version(wanted), &version(lowest), &version(lowest), false).unwrap_or_default();
            assert!(why.contains(says) && why.is_empty() == says.is_empty(), "{lowest} to {wanted}: {why}");
        }
    }

    #[test]
    fn those_that_leave_hold_the_next_minor_version_up_and_do_not_keep_the_way_back_open() {
        let why = |wanted: &str| explain(&version(wanted), &version("3.5.32"), &version("3.6.16"), false);
        assert!(why("3.7.3").unwrap().contains("go to 3.6.11 or later first"));
        assert!(why("3.5.33").unwrap().contains("stay with 3.6"));
        assert_eq!(why("3.6.17"), None);
    }

    #[test]
    fn a_cluster_with_several_learners_stays_away_from_what_takes_one() {
        assert_eq!(explain(&version("3.5.40"), &version("3.5.32"), &version("3.5.32"), false), None);
        assert!(
            explain(&version("3.5.40"), &version("3.5.32"), &version("3.5.32"), true).is_some(),
            "whatever brought it there"
        );
    }
}
