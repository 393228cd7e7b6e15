//! The same story once for each place.

use super::place::Place;
use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use futures::stream;
use std::time::Instant;

/// Replays one place: `E2E_PLACE=17:answer-lost`.
const PLACE: &str = "E2E_PLACE";
/// After so many failures the rest tells nothing new.
const ENOUGH: usize = 5;

/// How a story with a fault ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// As it has to, after the fault happened to this write.
    AfterFault(String),
    /// As it has to, with fewer writes than the place's number: when things coincide differently, there are some less.
    NotReached,
}

/// A story that is told at many places.
pub struct Sweep<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// Writes that it has when nothing happens.
    pub writes: usize,
    /// Where something happens. `E2E_PLACE` takes their place.
    pub places: Vec<Place>,
    /// How many stories run side by side.
    pub at_once: usize,
}

struct Row {
    place: Place,
    seconds: f64,
    ending: Result<Ending>,
}

impl Sweep<'_> {
    /// Tells the story at all places, and prints each of them with what happened and the seconds.
    ///
    /// # Errors
    /// When one did not end as it has to, with the place that repeats it; when most places were not reached.
    pub async fn run(mut self, story: impl AsyncFn(Place) -> Result<Ending>) -> Result<()> {
        if let Ok(place) = std::env::var(PLACE) {
            self.places = vec![place.parse().context(PLACE)?];
        }
        let begun = Instant::now();
        println!("{}: {} writes, {} places", self.name, self.writes, self.places.len());
        let total = self.places.len();
        let mut rows: Vec<Row> = Vec::new();
        let mut stories = stream::iter(self.places).map(|place| tell(&story, place)).buffer_unordered(self.at_once);
        while let Some(row) = stories.next().await {
            println!("  {}", row.line());
            rows.push(row);
            if rows.iter().filter(|row| row.ending.is_err()).count() >= ENOUGH {
                break;
            }
        }
        drop(stories);
        let reached = rows.iter().filter(|row| matches!(row.ending, Ok(Ending::AfterFault(_)))).count();
        let seconds = begun.elapsed().as_secs();
        println!("{}: {reached} of {total} places reached, {seconds} s", self.name);
        let failures: Vec<&Row> = rows.iter().filter(|row| row.ending.is_err()).collect();
        if !failures.is_empty() {
            let lines: Vec<String> = failures.iter().map(|row| row.line()).collect();
            bail!("{PLACE}=… repeats one of these places:\n{}", lines.join("\n"));
        }
        ensure!(reached * 4 >= total * 3, "only {reached} of {total} places were reached: little is shown");
        Ok(())
    }
}

async fn tell(story: &impl AsyncFn(Place) -> Result<Ending>, place: Place) -> Row {
    let begun = Instant::now();
    let ending = story(place).await;
    Row { place, seconds: begun.elapsed().as_secs_f64(), ending }
}

impl Row {
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
    use super::super::place::How;
    use super::*;

    fn sweep() -> Sweep<'static> {
        Sweep { name: "a story", writes: 4, places: Place::all(4, &How::DEATHS), at_once: 3 }
    }

    #[tokio::test]
    async fn a_failing_place_is_named_and_most_places_have_to_be_reached() {
        let good = async |_| Ok(Ending::AfterFault("a write".to_owned()));
        sweep().run(good).await.unwrap();
        let third = async |place: Place| if place.write == 3 { bail!("lost") } else { good(place).await };
        let error = sweep().run(third).await.unwrap_err().to_string();
        assert!(error.contains("3:killed-after") && !error.contains("2:killed-after"), "{error}");
        let error = sweep().run(async |_| Ok(Ending::NotReached)).await.unwrap_err().to_string();
        assert!(error.contains("0 of 12"), "{error}");
    }
}
