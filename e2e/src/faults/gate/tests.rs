//! A gate in front of a server that counts the requests that reach it.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone)]
struct Note(&'static str);

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl Call for Note {
    fn is_write(&self) -> bool {
        self.0.starts_with("write")
    }
}

struct Stage {
    gate: Gate<Note>,
    victim: Arc<Victim>,
    reached: AtomicUsize,
    /// How many requests are refused with 409 first.
    refused: usize,
}

impl Stage {
    fn new(rules: Vec<Rule<Note>>) -> Self {
        let victim = Arc::new(Victim::default());
        victim.begin();
        Self { gate: Gate::new(victim.clone(), rules), victim, reached: AtomicUsize::new(0), refused: 0 }
    }

    async fn ask(&self, what: &'static str) -> Result<u16> {
        let send = async {
            let earlier = self.reached.fetch_add(1, Ordering::SeqCst);
            let code = if earlier < self.refused { 409 } else { 200 };
            Ok((code, code))
        };
        self.gate.pass(1, &Note(what), send, |code| code).await
    }

    fn reached(&self) -> usize {
        self.reached.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn reads_have_no_number_and_the_second_write_is_the_second() {
    let stage = Stage::new(vec![Rule::at_write(2, Fault::KillBefore)]);
    stage.ask("read").await.unwrap();
    stage.ask("write a").await.unwrap();
    stage.ask("read").await.unwrap();
    stage.ask("write b").await.unwrap_err();
    assert_eq!(stage.reached(), 3, "it is killed before");
    stage.ask("read").await.unwrap_err();
    assert!(stage.victim.was_killed());
    let fates: Vec<Fate> = stage.gate.writes().iter().map(|write| write.fate).collect();
    assert_eq!(fates, [Fate::Answered(200), Fate::NotSent(None)]);
    assert_eq!(stage.gate.strikes()[0].call.0, "write b");
}

#[tokio::test]
async fn after_a_write_the_server_has_it_and_the_manager_does_not_know() {
    let stage = Stage::new(vec![Rule::at_write(1, Fault::KillAfter)]);
    stage.ask("write").await.unwrap_err();
    assert!(stage.victim.was_killed());
    assert_eq!((stage.reached(), stage.gate.writes().0[0].fate), (1, Fate::AnswerLost(200)));
}

#[tokio::test]
async fn a_lost_answer_kills_nobody() {
    let stage = Stage::new(vec![Rule::at_write(1, Fault::LoseAnswer)]);
    stage.ask("write").await.unwrap_err();
    assert_eq!(stage.ask("write").await.unwrap(), 200);
    assert_eq!(stage.reached(), 2);
}

#[tokio::test]
async fn a_fault_after_a_write_waits_for_one_that_is_carried_out() {
    for (fault, is_killed) in [(Fault::KillAfter, true), (Fault::LoseAnswer, false)] {
        let stage = Stage { refused: 1, ..Stage::new(vec![Rule::at_write(1, fault)]) };
        assert_eq!(stage.ask("write refused").await.unwrap(), 409);
        assert!(stage.gate.strikes().is_empty() && !stage.victim.was_killed(), "{fault:?}");
        stage.ask("write").await.unwrap_err();
        assert_eq!(stage.victim.was_killed(), is_killed);
        let fates: Vec<Fate> = stage.gate.writes().iter().map(|write| write.fate).collect();
        assert_eq!(fates, [Fate::Answered(409), Fate::AnswerLost(200)]);
        let struck: Vec<&str> = stage.gate.strikes().iter().map(|strike| strike.call.0).collect();
        assert_eq!(struck, ["write"]);
    }
}

#[tokio::test]
async fn chosen_calls_are_answered_in_the_servers_place_as_often_as_is_said() {
    let stage = Stage::new(vec![Rule::at_call(|call: &Note| call.0 == "write b", Fault::Answer(409)).times(2)]);
    let mut answers = Vec::new();
    for what in ["write a", "write b", "write b", "write b"] {
        answers.push(stage.ask(what).await.unwrap());
    }
    assert_eq!((answers, stage.reached()), (vec![200, 409, 409, 200], 2));
}

#[tokio::test(start_paused = true)]
async fn others_overtake_a_write_that_is_delayed() {
    let stage = Stage::new(vec![Rule::at_write(1, Fault::Delay(Duration::from_secs(5)))]);
    let begun = tokio::time::Instant::now();
    let second = async {
        tokio::task::yield_now().await;
        stage.ask("write second").await.unwrap();
        begun.elapsed()
    };
    let (first, second) = tokio::join!(stage.ask("write first"), second);
    assert_eq!((first.unwrap(), second), (200, Duration::ZERO));
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn writes_are_sent_one_at_a_time() {
    let stage = Stage::new(Vec::new());
    let (answer, answered) = tokio::sync::oneshot::channel::<()>();
    let slow = stage.gate.pass(
        1,
        &Note("write first"),
        async {
            answered.await?;
            Ok((200, stage.reached()))
        },
        usize::from,
    );
    let second = async {
        tokio::task::yield_now().await;
        let mut later = std::pin::pin!(stage.ask("write second"));
        assert!(futures::poll!(later.as_mut()).is_pending(), "it waits until the first one is answered");
        answer.send(()).unwrap();
        later.await
    };
    let (first, second) = tokio::join!(slow, second);
    assert_eq!((first.unwrap(), second.unwrap()), (0, 200));
}
