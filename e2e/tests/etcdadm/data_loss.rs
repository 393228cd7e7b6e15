//! Members lose their data while no controller watches them: they never vote again, and the others keep their data.

use crate::hands::{Person, types_it_again};
use anyhow::{Context, Result, ensure};
use e2e::bed::Membership;
use e2e::bed::data::{DataLoss, Keys, never_comes_back, stays_silent};
use e2e::scenarios::is_full;
use e2e::tools::Etcd;
use e2e::world::World;
use futures::future::try_join_all;
use local_infrastructure::machine::Machine;
use std::time::{Duration, Instant};

/// How long a story checks that a member stays down: a few times what a restart takes.
const WATCHED: Duration = Duration::from_secs(5);

/// Each loss in a cluster of its own with one member: etcd never starts again without data, or with older data.
pub(crate) async fn of_the_only_member(world: World, etcd: Etcd) -> Result<()> {
    let person = &Person::with(&world, etcd)?;
    let losses = (0..).zip(DataLoss::ALL).map(|(number, loss)| async move {
        let machine = person.machine(number).await?;
        person.inits(&machine).await?;
        let mut keys = Keys::default();
        keys.write(&machine, 5).await?;
        loss.prepare(&machine).await?;
        keys.write(&machine, 5).await?;
        loss.strike(&machine).await?;
        never_comes_back(&machine, loss, WATCHED).await.with_context(|| loss.to_string())?;
        machine.destroy()?;
        anyhow::Ok(())
    });
    try_join_all(losses).await.map(drop)
}

/// First the member that initialized loses its disk, then the two that joined lose their data. Each is removed and
/// replaced.
pub(crate) async fn of_one_of_three(world: World, etcd: Etcd) -> Result<()> {
    of_three(&world, etcd, &[DataLoss::RobbedDisk, DataLoss::DeletedDirectory, DataLoss::OlderCopy]).await
}

/// The member that initialized gets an older copy. Then one that joined loses its disk, and with `E2E_FULL=1` the other
/// gets a copy from before its last stop.
pub(crate) async fn of_the_first_of_three(world: World, etcd: Etcd) -> Result<()> {
    let losses = [DataLoss::OlderCopy, DataLoss::RobbedDisk, DataLoss::CopyFromBeforeStop];
    of_three(&world, etcd, if is_full() { &losses[..] } else { &losses[..2] }).await
}

/// Two of five, as many as five survive: at the same time, the member that initialized loses its disk, and one that
/// joined gets an older copy. Both are removed and replaced. Then two more that joined: one loses its directory, and
/// one of the four that are left, which also survive one failure, gets a copy from before its last stop.
pub(crate) async fn of_two_of_five(world: World, etcd: Etcd) -> Result<()> {
    let begun = Instant::now();
    let person = Person::with(&world, etcd)?;
    let mut lost = try_join_all((0..5).map(|number| person.machine(number))).await?;
    person.inits(&lost[0]).await?;
    for joining in &lost[1..] {
        person.joins(joining, &lost[0]).await?;
    }
    println!("  five members after {:.1} s", begun.elapsed().as_secs_f32());
    let mut members = lost.split_off(2);
    person.will_join(&lost[1], &members).await?;
    let losses = || lost.iter().zip([DataLoss::RobbedDisk, DataLoss::OlderCopy]);

    let mut keys = Keys::default();
    keys.write(&members[0], 5).await?;
    for (machine, loss) in losses() {
        loss.prepare(machine).await?;
    }
    keys.write(&members[0], 5).await?;
    let before = Membership::on(members[0].clone()).await?;
    ensure!(before.voters().len() == 5, "{before:?}");
    try_join_all(losses().map(|(machine, loss)| loss.strike(machine))).await?;
    let silent = losses().map(|(machine, loss)| async move {
        never_comes_back(machine, loss, WATCHED).await.with_context(|| format!("{}: {loss}", machine.spec().name))
    });
    try_join_all(silent).await?;
    go_on(&members, &before, &mut keys).await?;

    // etcd does not add a sixth member while two of five are silent.
    for (machine, loss) in losses() {
        person.removes(machine, &members[0]).await?;
        loss.has_left_no_trace(machine).await?;
    }
    lost.into_iter().try_for_each(Machine::destroy)?;
    for number in 5..7 {
        let another = person.machine(number).await?;
        person.joins(&another, &members[0]).await?;
        members.push(another);
    }
    let after = Membership::on(members[0].clone()).await?;
    ensure!(after.voters().len() == 5, "{after:?}");
    go_on(&members, &after, &mut keys).await?;

    for loss in [DataLoss::DeletedDirectory, DataLoss::CopyFromBeforeStop] {
        let lost = members.remove(0);
        person.will_join(&lost, &members).await?;
        loses(&lost, &members, loss, &mut keys).await.with_context(|| loss.to_string())?;
        person.removes(&lost, &members[0]).await?;
        lost.destroy()?;
    }
    members.into_iter().try_for_each(|member| Ok(member.destroy()?))
}

/// One `init` and two `join`. Then one loss after the other, each on the oldest machine that is left.
async fn of_three(world: &World, etcd: Etcd, losses: &[DataLoss]) -> Result<()> {
    let begun = Instant::now();
    let person = Person::with(world, etcd)?;
    let mut members = try_join_all((0..3).map(|number| person.machine(number))).await?;
    person.inits(&members[0]).await?;
    person.joins(&members[1], &members[0]).await?;
    person.joins(&members[2], &members[0]).await?;
    let initialized = members[0].spec().name.clone();
    println!("  three members after {:.1} s", begun.elapsed().as_secs_f32());
    let mut keys = Keys::default();
    for (number, loss) in (3..).zip(losses) {
        let begun = Instant::now();
        let lost = members.remove(0);
        if lost.spec().name != initialized {
            person.will_join(&lost, &members).await?;
        }
        loses(&lost, &members, *loss, &mut keys).await.with_context(|| format!("{}: {loss}", lost.spec().name))?;
        println!("  {}: {loss}: {:.1} s", lost.spec().name, begun.elapsed().as_secs_f32());

        person.removes(&lost, &members[0]).await?;
        stays_out(&lost, &members).await.with_context(|| format!("{}: removed", lost.spec().name))?;
        loss.has_left_no_trace(&lost).await?;
        lost.destroy()?;
        let another = person.machine(number).await?;
        person.joins(&another, &members[0]).await?;
        members.push(another);
        for member in &members {
            keys.are_all_on(member).await?;
        }
    }
    // A healthy member is removed, and has to stay out.
    let removed = members.remove(0);
    person.will_join(&removed, &members).await?;
    person.removes(&removed, &members[0]).await?;
    stays_out(&removed, &members).await.with_context(|| format!("{}: well, and removed", removed.spec().name))?;
    members.push(removed);
    members.into_iter().try_for_each(|member| Ok(member.destroy()?))
}

/// One of the members loses its data. It never votes again, and the others go on with everything that was ever
/// acknowledged.
async fn loses(lost: &Machine, others: &[Machine], loss: DataLoss, keys: &mut Keys) -> Result<()> {
    keys.write(lost, 5).await?;
    loss.prepare(lost).await?;
    keys.write(lost, 5).await?;
    let before = Membership::on(others[0].clone()).await?;
    ensure!(before.voters().len() == others.len() + 1, "{before:?}");
    loss.strike(lost).await?;
    never_comes_back(lost, loss, WATCHED).await?;
    go_on(others, &before, keys).await
}

/// The others serve everything that was ever acknowledged, accept more writes, and have the same member list as before.
async fn go_on(others: &[Machine], before: &Membership, keys: &mut Keys) -> Result<()> {
    for other in others {
        keys.are_all_on(other).await?;
        keys.write(other, 1).await?;
        let list = Membership::on(other.clone()).await?;
        ensure!(list == *before, "the members were {before:?}, and are {list:?}");
    }
    Ok(())
}

/// A removed member does not come back when the command that made it a member runs again.
async fn stays_out(removed: &Machine, others: &[Machine]) -> Result<()> {
    let before = Membership::on(others[0].clone()).await?;
    let again = types_it_again(removed, 30).await?;
    let said = String::from_utf8_lossy(&again.stderr);
    ensure!(!again.status.success(), "it is said that all is well: {said}");
    ensure!(again.status.code() != Some(124), "it goes on trying: {said}");
    stays_silent(removed, WATCHED).await?;
    let list = Membership::on(others[0].clone()).await?;
    ensure!(list == before, "it has changed the list from {before:?} to {list:?}; it said {said}");
    Ok(())
}
