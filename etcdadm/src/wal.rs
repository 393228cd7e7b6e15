//! The member that the data on this machine belongs to, according to etcd's write-ahead log.
//!
//! Each segment begins with a checksum record and a metadata record, in that order. A record consists of its length, a
//! `walpb.Record`, and padding. The length is a little-endian number of eight bytes: the lower 56 bits are the length,
//! and the top byte says how much padding follows. Source: etcd 3.4 to 3.7.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use prost::Message;

use crate::paths::Paths;

/// The member that the data belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its cluster.
    pub cluster_id: u64,
    /// Its ID there.
    pub member_id: u64,
}

/// `walpb.Record`, without its checksum.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(int64, tag = "1")]
    type_: i64,
    #[prost(bytes = "vec", optional, tag = "3")]
    data: Option<Vec<u8>>,
}

/// `walpb.Metadata`.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(uint64, tag = "1")]
    node_id: u64,
    #[prost(uint64, tag = "2")]
    cluster_id: u64,
}

/// Type of the record that holds the metadata.
const METADATA: i64 = 1;
/// More than the first two records take.
const HEAD: u64 = 4096;

/// The newest segment of the write-ahead log, if there is one.
///
/// # Errors
/// When the directory exists and cannot be read.
pub fn newest(paths: &Paths) -> Result<Option<PathBuf>> {
    let directory = paths.wal_dir();
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        entries => entries.with_context(|| format!("cannot read {}", directory.display()))?,
    };
    let segments = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(segments.filter(|path| path.extension().is_some_and(|ending| ending == "wal")).max())
}

/// Reads the owner of the write-ahead log; `None` if there is no log.
///
/// # Errors
/// When it cannot be read.
pub fn owner(paths: &Paths) -> Result<Option<Owner>> {
    let Some(path) = newest(paths)? else { return Ok(None) };
    let at = || format!("cannot read {}", path.display());
    let mut head = Vec::new();
    File::open(&path).and_then(|file| file.take(HEAD).read_to_end(&mut head)).with_context(at)?;
    let owner = owner_in(&head).context("it does not begin as etcd's write-ahead log does").with_context(at)?;
    Ok(Some(owner))
}

fn owner_in(mut segment: &[u8]) -> Option<Owner> {
    for _ in 0..2 {
        let (length, rest) = segment.split_at_checked(8)?;
        let length = u64::from_le_bytes(length.try_into().ok()?);
        let padding = if length >> 63 == 1 { length >> 56 & 7 } else { 0 };
        let bytes = usize::try_from(length & !(0xff << 56)).ok()?;
        let (record, rest) = rest.split_at_checked(bytes)?;
        segment = rest.get(usize::try_from(padding).ok()?..)?;
        let record = Record::decode(record).ok()?;
        if record.type_ == METADATA {
            let metadata = Metadata::decode(record.data?.as_slice()).ok()?;
            return Some(Owner { cluster_id: metadata.cluster_id, member_id: metadata.node_id });
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The head of a segment as etcd writes it. Tests of other modules use it too.
    pub(crate) fn segment(owner: Owner) -> Vec<u8> {
        fn put(mut number: u64, to: &mut Vec<u8>) {
            while number >= 0x80 {
                to.push(number.to_le_bytes()[0] | 0x80);
                number >>= 7;
            }
            to.push(number.to_le_bytes()[0]);
        }
        let mut metadata = vec![0x08];
        put(owner.member_id, &mut metadata);
        metadata.push(0x10);
        put(owner.cluster_id, &mut metadata);
        let mut record = vec![0x08, 0x01, 0x10];
        put(0xdead_beef, &mut record);
        record.push(0x1a);
        put(metadata.len() as u64, &mut record);
        record.extend(metadata);
        let mut segment = Vec::new();
        for record in [vec![0x08, 0x04, 0x10, 0x00], record] {
            let padding = (8 - record.len() % 8) % 8;
            let mut length = record.len() as u64;
            if padding != 0 {
                length |= (0x80 | padding as u64) << 56;
            }
            segment.extend(length.to_le_bytes());
            segment.extend(record);
            segment.extend(vec![0; padding]);
        }
        segment.extend([0; 64]);
        segment
    }

    #[test]
    fn the_owner_stands_in_the_second_record() {
        for owner in
            [Owner { cluster_id: u64::MAX, member_id: 0x8211_f1d0_f64f_3269 }, Owner { cluster_id: 1, member_id: 2 }]
        {
            assert_eq!(owner_in(&segment(owner)), Some(owner));
        }
    }

    #[test]
    fn what_is_not_a_log_has_no_owner() {
        let good = segment(Owner { cluster_id: 1, member_id: 2 });
        for bad in [&[][..], &[0; 64], &good[..20], b"\xff\xff\xff\xff\xff\xff\xff\xffx"] {
            assert_eq!(owner_in(bad), None);
        }
    }
}
