//! The same story once for each place.

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
/// After so many failures the rest tells nothing new.
const ENOUGH: usize = 5;

/// Without `E2E_EVERY_PLACE`, so many places are tried at most. A story takes a minute or two.
const SAMPLE: usize = 12;

/// How a story with a fault ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// As it has to, after the fault happened to this write.
    AfterFault(String),
    /// As it has to, without the fault: when things coincide differently, there are some writes less.
    NotReached,
}

/// A story that is told at many places.
pub struct Sweep<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// What was written when nothing happened, in its order.
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
    /// Tells the story at a sample of the writes, each in one of these ways; or, with `E2E_EVERY_PLACE` set, at all of them in
    /// each. Chance decides where a sample begins, so that many runs hit them all.
    ///
    /// # Errors
    /// As [`Sweep::run`].
    pub async fn run_wanted(&self, ways: &[How], story: impl AsyncFn(Place) -> Result<Ending>) -> Result<()> {
        if tries_every_place() {
            return self.run_all(ways, story).await;
        }
        let every = self.writes.len().div_ceil(SAMPLE).max(1);
        let skipped = usize::try_from(seed()? % (every * ways.len()) as u64)?;
        self.run(Place::sample(self.writes.len(), ways, every, skipped), story).await.map(drop)
    }

    /// Tells the story at each write of a part of it, in one of these ways; or, with `E2E_EVERY_PLACE` set, at all writes in
    /// each. `part` is counted from 0, and what is written like this has to be among what was hit. What no number has hit, as
    /// things coincided differently, is told again, and found by what is written.
    ///
    /// # Errors
    /// As [`Sweep::run`]; and when something was not hit.
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

    /// The first write like this from a number on, counted from 0, found by what is written.
    fn like(&self, name: &str, from: usize, how: How) -> Place {
        let earlier = self.writes[..from].iter().filter(|write| *write == name).count();
        Place { at: At::Like(name.to_owned(), earlier + 1), how }
    }

    /// Tells the story at every write in each of these ways.
    ///
    /// Which write has which number differs from run to run, as controllers write side by side. What no number has hit in one
    /// of the ways is told again, and found by what is written.
    ///
    /// # Errors
    /// As [`Sweep::run`]; and when after both there is a write that was not hit in one of the ways.
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

    /// What is not among the hits, by name: every write, once, in each of the ways.
    fn missed(&self, ways: &[How], hit: &BTreeSet<(String, How)>) -> Vec<Place> {
        let writes: BTreeSet<&String> = self.writes.iter().collect();
        let every = writes.into_iter().flat_map(|write| ways.iter().map(move |how| (write.clone(), *how)));
        let missed = every.filter(|place| !hit.contains(place));
        missed.map(|(write, how)| Place { at: At::Like(write, 1), how }).collect()
    }

    /// Tells the story at these places, or at the one that `E2E_PLACE` names, and prints each with what happened and the
    /// seconds. Gives what was written there, and what happened to it.
    ///
    /// # Errors
    /// When one did not end as it has to, with the place that repeats it; when many places were not reached.
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

    /// Tells the story at these places. Gives what was written at each that was reached, and what happened to it.
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

/// Those of the writes that are in none of the hits.
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
