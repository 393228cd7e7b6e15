//! The changes in the directories of machines, as a stream of machines to reconcile. So nobody has to poll.

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use rustix::{
    fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init},
    io::Errno,
};
use std::{
    collections::HashMap,
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Files whose changes matter: whether a machine runs, whether it should run, and the result of its bootstrap.
const FILES: [&[u8]; 3] = [b"bootstrap.json", b"power", b"process.json"];

/// Namespace and name of a machine.
pub type Key = (String, String);

/// Watches directories of machines.
#[derive(Clone)]
pub struct Events {
    inotify: Arc<OwnedFd>,
    watched: Arc<Mutex<HashMap<i32, Key>>>,
}

impl Events {
    /// Does not watch anything yet. A thread reads the changes, and runs until the process ends.
    ///
    /// # Errors
    /// If the kernel refuses a further inotify instance or a thread for this user.
    pub fn start() -> io::Result<(Self, UnboundedReceiver<Key>)> {
        let events = Self { inotify: Arc::new(init(CreateFlags::CLOEXEC)?), watched: Arc::default() };
        let (sender, receiver) = unbounded();
        let reader = events.clone();
        thread::Builder::new().name("inotify".to_owned()).spawn(move || reader.read(&sender))?;
        Ok((events, receiver))
    }

    /// Watches one more directory; nothing happens if it is already watched. The watch ends with the directory.
    ///
    /// # Errors
    /// If the directory does not exist, or the kernel refuses a further watch for this user.
    pub fn watch(&self, directory: &Path, namespace: &str, name: &str) -> io::Result<()> {
        let flags = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        let id = add_watch(&self.inotify, directory, flags)?;
        self.watched().insert(id, (namespace.to_owned(), name.to_owned()));
        Ok(())
    }

    fn read(&self, sender: &UnboundedSender<Key>) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(error) => return tracing::error!(%error, "machines are no longer watched"),
            };
            let mut watched = self.watched();
            if event.events().contains(ReadFlags::IGNORED) {
                watched.remove(&event.wd());
            } else if event.file_name().is_some_and(|name| FILES.contains(&name.to_bytes()))
                && let Some(key) = watched.get(&event.wd())
                && sender.unbounded_send(key.clone()).is_err()
            {
                return;
            }
        }
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Key>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use std::fs;

    #[tokio::test]
    async fn a_result_is_an_event_and_the_console_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let (events, mut changed) = Events::start().expect("inotify");
        events.watch(directory.path(), "default", "one").expect("watched");
        fs::write(directory.path().join("console.log"), "hello").expect("written");
        fs::write(directory.path().join(".temporary"), "{}").expect("written");
        fs::rename(directory.path().join(".temporary"), directory.path().join("bootstrap.json")).expect("renamed");
        assert_eq!(changed.next().await, Some(("default".to_owned(), "one".to_owned())));
        assert!(changed.try_recv().is_err(), "one change, one event");
    }
}
