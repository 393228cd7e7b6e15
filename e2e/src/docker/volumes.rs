//! Finds where containers have etcd's data, without asking the daemon: the daemon answers late while a container is
//! being frozen, and the observer does not wait.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where the docker infrastructure mounts a volume in every container.
const MOUNT: &str = "/var";
/// etcd's data directory, below that volume.
const DATA: &str = "lib/etcd";
/// How long a result is reused. A missing container may appear meanwhile, and a container may be replaced by another
/// one of the same name.
const BELIEVED: Duration = Duration::from_secs(1);

/// The parts of the daemon's file about a container that are used here.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    name: String,
    mount_points: BTreeMap<String, MountPoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MountPoint {
    /// Name of the volume; empty if the mount is not a volume.
    name: String,
}

/// The volumes of a daemon's containers, according to the daemon's files.
pub(super) struct Volumes {
    root: PathBuf,
    found: Mutex<BTreeMap<String, (Instant, Option<PathBuf>)>>,
}

impl Volumes {
    /// The volumes of the daemon that stores everything in this directory.
    pub(super) fn below(root: PathBuf) -> Self {
        Self { root, found: Mutex::default() }
    }

    /// Where a container has etcd's data, if the container exists, running or not.
    pub(super) fn data(&self, container: &str) -> Option<PathBuf> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, data)) = found.get(container)
            && at.elapsed() < BELIEVED
        {
            return data.clone();
        }
        let data = self.look(container);
        found.insert(container.to_owned(), (Instant::now(), data.clone()));
        data
    }

    fn look(&self, container: &str) -> Option<PathBuf> {
        let directories = fs::read_dir(self.root.join("containers")).ok()?.flatten();
        let mut containers = directories.filter_map(|entry| read(&entry.path()));
        let found = containers.find(|found| found.name.trim_start_matches('/') == container)?;
        let volume = found.mount_points.get(MOUNT).filter(|volume| !volume.name.is_empty())?;
        Some(self.root.join("volumes").join(&volume.name).join("_data").join(DATA))
    }
}

/// Reads the file of a container. `None` if the container is being made or removed.
fn read(directory: &Path) -> Option<Container> {
    serde_json::from_slice(&fs::read(directory.join("config.v2.json")).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_volume_of_a_container_is_found_by_its_name() {
        let root = tempfile::tempdir().unwrap();
        let write = |id: &str, content: &str| {
            let directory = root.path().join("containers").join(id);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("config.v2.json"), content).unwrap();
        };
        let with = |name: &str, mounts: &Value| json!({"Name": name, "MountPoints": mounts}).to_string();
        let of_a_machine = json!({
            "/lib/modules": {"Source": "/lib/modules", "Destination": "/lib/modules", "Name": ""},
            "/var": {"Source": "", "Destination": "/var", "Name": "v1", "Driver": "local"},
        });
        write("1", &with("/demo-lb", &json!({})));
        write("2", &with("/demo-etcd-10", &json!({"/var": {"Name": "other", "Destination": "/var"}})));
        write("3", &with("/demo-etcd-1", &of_a_machine));
        write("4", "{\"Name\":");
        let volumes = Volumes::below(root.path().to_owned());
        assert_eq!(volumes.data("demo-etcd-1"), Some(root.path().join("volumes/v1/_data/lib/etcd")));
        assert_eq!(volumes.data("demo-lb"), None);
        assert_eq!(volumes.data("demo-etcd"), None);
    }
}
