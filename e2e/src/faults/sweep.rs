//! Runs the same story once for each place.

use super::place::{At, How, Place};
use crate::scenarios::{seed, tries_every_place};
use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use futures::stream;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

/// Replays one place: `E2E_PLACE=17:answer-lost`.
const PLACE: &str = "E2E_PLACE";
/// After this many failures, further places show nothing new.
const ENOUGH: usize = 5;

/// How many places are tried at most, without `E2E_EVERY_PLACE`. A story takes one to two minutes.
const SAMPLE: usize = 12;

/// How a story with a fault ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// As it has to, after a fault in this write.
    AfterFault(String),
    /// As it has to, without the fault. Depending on the timing, there are sometimes fewer writes.
    NotReached,
}

/// A story that is run for many places.
pub struct Sweep<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// The names of the writes of a run without faults, in order.
    pub writes: Vec<String>,
    /// How many stories run side by side.
    pub at_once: usize,
}

struct Row {
    place: Place,
    seconds: f64,
    ending: Result<Ending>,
}

impl Sweep<'_> {
    /// Runs the story for a sample of the writes, with one of these faults each. With `E2E_EVERY_PLACE` set, runs it
    /// for all writes with each fault. `E2E_SEED` or chance decides where the sample begins, so that many runs reach
    /// all places.
    ///
    /// # Errors
    /// As [`Sweep::run`].
    pub async fn run_wanted(&self, ways: &[How], story: impl AsyncFn(Place) -> Result<Ending>) -> Result<()> {
        if tries_every_place() {
            return self.run_all(ways, story).await;
        }
        let every = self.writes.len().div_ceil(SAMPLE).max(1);
        let seed = seed()?;
        println!("{}: E2E_SEED={seed} tries the same places", self.name);
        let skipped = usize::try_from(seed % (every * ways.len()) as u64)?;
        self.run(Place::sample(self.writes.len(), ways, every, skipped), story).await.map(drop)
    }

    /// Runs the story for each write of a part of it, with one of these faults each. With `E2E_EVERY_PLACE` set, runs
    /// it for all writes with each fault. `part` counts from 0. Each of the names in `written` has to be among the
    /// writes that faults happened to. If no number has reached such a write, because the timing was different, the
    /// story is run again, and the write is found by name.
    ///
    /// # Errors
    /// As [`Sweep::run`]; also when no fault happened to one of `written`.
    pub async fn run_part(
        &self,
        part: Range<usize>,
        written: &[&str],
        ways: &[How],
        story: impl AsyncFn(Place) -> Result<Ending>,
    ) -> Result<()> {
        if tries_every_place() {
            return self.run_all(ways, story).await;
        }
        let places = Place::sample(self.writes.len(), ways, 1, 0)[part.clone()].to_vec();
        let mut hit = self.run(places, &story).await?;
        if is_replay() {
            return Ok(());
        }
        let missed = not_hit(written, &hit);
        if !missed.is_empty() {
            let again = missed.into_iter().zip(ways.iter().cycle());
            let again = again.map(|(name, how)| self.like(name, part.start, *how)).collect();
            hit.extend(self.tell_all(again, &story).await?);
        }
        let missed = not_hit(written, &hit);
        ensure!(missed.is_empty(), "these were not hit: {missed:?}");
        Ok(())
    }

    /// The first write with this name from number `from` on, which counts from 0. It is found by name.
    fn like(&self, name: &str, from: usize, how: How) -> Place {
        let earlier = self.writes[..from].iter().filter(|write| *write == name).count();
        Place { at: At::Like(name.to_owned(), earlier + 1), how }
    }

    /// Runs the story for every write with each of these faults.
    ///
    /// The numbers of writes differ from run to run, because controllers write side by side. If no number has reached a
    /// write with one of the faults, the story is run again, and the write is found by name.
    ///
    /// # Errors
    /// As [`Sweep::run`]; also when one of the faults has not happened to a write after both.
    pub async fn run_all(&self, ways: &[How], story: impl AsyncFn(Place) -> Result<Ending>) -> Result<()> {
        let begun = Instant::now();
        let mut hit = self.run(Place::all(self.writes.len(), ways), &story).await?;
        if is_replay() {
            return Ok(());
        }
        let mut told = self.writes.len() * ways.len();
        let missed = self.missed(ways, &hit);
        if !missed.is_empty() {
            told += missed.len();
            hit.extend(self.tell_all(missed, &story).await?);
        }
        let missing: Vec<String> = self.missed(ways, &hit).iter().map(Place::to_string).collect();
        let wanted = self.missed(ways, &BTreeSet::new()).len();
        println!(
            "{}: {told} places in all, {} s; of different writes, each in {} ways, {} of {wanted} were hit",
            self.name,
            begun.elapsed().as_secs(),
            ways.len(),
            wanted - missing.len()
        );
        ensure!(missing.is_empty(), "neither by number nor by name were hit: {}", missing.join(", "));
        Ok(())
    }

    /// Every write, by name, with each of the faults that has not happened to it.
    fn missed(&self, ways: &[How], hit: &BTreeSet<(String, How)>) -> Vec<Place> {
        let writes: BTreeSet<&String> = self.writes.iter().collect();
        let every = writes.into_iter().flat_map(|write| ways.iter().map(move |how| (write.clone(), *how)));
        let missed = every.filter(|place| !hit.contains(place));
        missed.map(|(write, how)| Place { at: At::Like(write, 1), how }).collect()
    }

    /// Runs the story for these places, or for the one that `E2E_PLACE` names. Prints each place with what happened and
    /// the seconds. Returns the writes that faults happened to, with the faults.
    ///
    /// # Errors
    /// When a story does not end as it has to: the error has the place, to repeat it. Also when more than a quarter of
    /// the places were not reached.
    pub async fn run(
        &self,
        mut places: Vec<Place>,
        story: impl AsyncFn(Place) -> Result<Ending>,
    ) -> Result<BTreeSet<(String, How)>> {
        if let Ok(place) = std::env::var(PLACE) {
            places = vec![place.parse().context(PLACE)?];
        }
        let total = places.len();
        let hit = self.tell_all(places, story).await?;
        ensure!(hit.len() * 4 >= total * 3, "only {} of {total} places were reached: little is shown", hit.len());
        Ok(hit.into_iter().collect())
    }

    /// Runs the story for these places. Returns the write of each place that was reached, with its fault.
    async fn tell_all(
        &self,
        places: Vec<Place>,
        story: impl AsyncFn(Place) -> Result<Ending>,
    ) -> Result<Vec<(String, How)>> {
        let (begun, total) = (Instant::now(), places.len());
        println!("{}: {} writes, {total} places", self.name, self.writes.len());
        let mut rows: Vec<Row> = Vec::new();
        let mut stories = stream::iter(places).map(|place| tell(&story, place)).buffer_unordered(self.at_once);
        while let Some(row) = stories.next().await {
            println!("  {}", row.line());
            rows.push(row);
            if rows.iter().filter(|row| row.ending.is_err()).count() >= ENOUGH {
                break;
            }
        }
        drop(stories);
        let hit: Vec<(String, How)> = rows.iter().filter_map(Row::hit).collect();
        println!("{}: {} of {total} places reached, {} s", self.name, hit.len(), begun.elapsed().as_secs());
        let failures: Vec<String> = rows.iter().filter(|row| row.ending.is_err()).map(Row::line).collect();
        if !failures.is_empty() {
            bail!("{PLACE}=… repeats one of these places:\n{}", failures.join("\n"));
        }
        Ok(hit)
    }
}

/// Those of the writes that are not among the hits.
fn not_hit<'a>(written: &[&'a str], hit: &BTreeSet<(String, How)>) -> Vec<&'a str> {
    written.iter().copied().filter(|name| !hit.iter().any(|(write, _)| write == name)).collect()
}

fn is_replay() -> bool {
    std::env::var_os(PLACE).is_some()
}

async fn tell(story: &impl AsyncFn(Place) -> Result<Ending>, place: Place) -> Row {
    let begun = Instant::now();
    let ending = story(place.clone()).await;
    Row { place, seconds: begun.elapsed().as_secs_f64(), ending }
}

impl Row {
    fn hit(&self) -> Option<(String, How)> {
        match &self.ending {
            Ok(Ending::AfterFault(write)) => Some((write.clone(), self.place.how)),
            _ => None,
        }
    }

    fn line(&self) -> String {
        let ending = match &self.ending {
            Ok(Ending::AfterFault(write)) => write.clone(),
            Ok(Ending::NotReached) => "not reached".to_owned(),
            Err(error) => format!("FAILED: {error:#}"),
        };
        format!("{:<18} {:>5.1} s  {ending}", self.place.to_string(), self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn sweep() -> Sweep<'static> {
        Sweep { name: "a story", writes: ["a", "b", "c", "d"].map(str::to_owned).to_vec(), at_once: 3 }
    }

    async fn same(_: Place) -> Result<Ending> {
        Ok(Ending::AfterFault("a".to_owned()))
    }

    #[tokio::test]
    async fn a_failing_place_is_named_and_most_places_have_to_be_reached() {
        sweep().run(Place::all(4, &How::DEATHS), same).await.unwrap();
        let third = async |place: Place| if place.at == At::Number(3) { bail!("lost") } else { same(place).await };
        let error = sweep().run(Place::all(4, &How::DEATHS), third).await.unwrap_err().to_string();
        assert!(error.contains("3:killed-after") && !error.contains("2:killed-after"), "{error}");
        let nowhere = async |_| Ok(Ending::NotReached);
        let error = sweep().run(Place::all(4, &How::DEATHS), nowhere).await.unwrap_err().to_string();
        assert!(error.contains("0 of 12"), "{error}");
    }

    #[tokio::test]
    async fn each_write_of_a_part_is_a_place_and_some_have_to_be_hit() {
        let told = Mutex::new(Vec::new());
        let numbers_hit_a = async |place: Place| {
            told.lock().unwrap().push(place.to_string());
            match place.at.clone() {
                At::Like(write, _) if write != "d" => Ok(Ending::AfterFault(write)),
                At::Like(..) => Ok(Ending::NotReached),
                At::Number(_) => same(place).await,
            }
        };
        let mut sweep = sweep();
        sweep.writes.extend(["b", "b"].map(str::to_owned));
        sweep.run_part(4..6, &["a", "b"], &How::DEATHS, &numbers_hit_a).await.unwrap();
        let mut names = std::mem::take(&mut *told.lock().unwrap());
        names.sort();
        assert_eq!(names, ["5:killed-after", "6:answer-lost", "b#2:killed-before"], "the first one of the part");
        let error = sweep.run_part(4..6, &["d", "a"], &How::DEATHS, &numbers_hit_a).await.unwrap_err().to_string();
        assert!(error.ends_with(r#"["d"]"#), "{error}");
    }

    #[tokio::test]
    async fn what_no_number_has_hit_is_found_by_its_name() {
        let named = Mutex::new(Vec::new());
        let story = async |place: Place| match place.at.clone() {
            At::Like(write, 1) => {
                named.lock().unwrap().push(write.clone());
                Ok(Ending::AfterFault(write))
            }
            _ => same(place).await,
        };
        sweep().run_all(&[How::AnswerLost], story).await.unwrap();
        assert_eq!(named.into_inner().unwrap(), ["b", "c", "d"]);
    }

    #[tokio::test]
    async fn what_neither_its_number_nor_its_name_has_hit_is_missing() {
        let story = async |place: Place| match place.at.clone() {
            At::Like(write, _) if write == "c" => Ok(Ending::NotReached),
            At::Like(write, _) => Ok(Ending::AfterFault(write)),
            At::Number(_) => same(place).await,
        };
        let error = sweep().run_all(&How::DEATHS, story).await.unwrap_err().to_string();
        assert!(error.ends_with(": c:killed-before, c:killed-after, c:answer-lost"), "{error}");
    }
}
