//! How far etcd's WAL on a disk goes. Only what this requires is read: frames, their types, and the index of an entry.
//!
//! The WAL is a directory of segments. Each segment is a sequence of frames, and a frame is eight bytes with the length
//! of a record (and, in the highest byte, the number of padding bytes after it), then the record. A segment is
//! allocated in advance, and zeros follow the last frame.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// Type of a record that is an entry.
const ENTRY: u64 = 2;
/// Type of a record that has the index of a snapshot.
const SNAPSHOT: u64 = 5;
/// A length above this is not the length of a record.
const LONGEST: u64 = 1 << 30;

/// Index of the last entry, or of the last snapshot if that goes further; 0 if there is no log in `directory`.
///
/// # Errors
/// When a file cannot be read. What follows an incomplete frame is not read.
pub(super) fn last_index(directory: &Path) -> io::Result<u64> {
    let mut last = 0;
    for segment in segments(directory)?.iter().rev() {
        last = last_of(segment)?;
        if last > 0 {
            break;
        }
    }
    Ok(last)
}

/// The segments, oldest first: their names begin with their number.
fn segments(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut segments = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    segments.sort();
    Ok(segments)
}

fn last_of(segment: &Path) -> io::Result<u64> {
    let mut file = match File::open(segment) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => BufReader::new(file?),
    };
    let (mut entry, mut snapshot) = (0, 0);
    while let Some(record) = frame(&mut file)? {
        let Some((kind, data)) = parts(&record) else { break };
        match kind {
            // A later entry replaces the entries with the same index and above.
            ENTRY => entry = number(data, 3).unwrap_or(entry),
            SNAPSHOT => snapshot = number(data, 1).unwrap_or(snapshot),
            _ => {}
        }
    }
    Ok(entry.max(snapshot))
}

/// The next record. `None` at the end of the file, also if the file ends in the middle of a record.
fn frame(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 8];
    if !fill(file, &mut head)? {
        return Ok(None);
    }
    let head = u64::from_le_bytes(head);
    let (length, padding) = (head & 0x00ff_ffff_ffff_ffff, if head >> 63 == 1 { head >> 56 & 7 } else { 0 });
    if length == 0 || length > LONGEST {
        return Ok(None);
    }
    let mut record = vec![0; usize::try_from(length + padding).map_err(io::Error::other)?];
    if !fill(file, &mut record)? {
        return Ok(None);
    }
    record.truncate(usize::try_from(length).map_err(io::Error::other)?);
    Ok(Some(record))
}

fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// Type and data of a record.
fn parts(record: &[u8]) -> Option<(u64, &[u8])> {
    let (mut kind, mut data) = (0, &[][..]);
    for field in Fields(record) {
        match field? {
            (1, Value::Number(number)) => kind = number,
            (3, Value::Bytes(bytes)) => data = bytes,
            _ => {}
        }
    }
    Some((kind, data))
}

/// The number in a field of a message.
fn number(message: &[u8], wanted: u64) -> Option<u64> {
    Fields(message).map_while(|field| field).find_map(|field| match field {
        (number, Value::Number(value)) if number == wanted => Some(value),
        _ => None,
    })
}

/// The fields of a protocol buffer, of the two wire types that the WAL has. A malformed field is `None`.
struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A frame with a record of this type around `data`, padded as etcd does it.
    fn framed(kind: u8, data: &[u8]) -> Vec<u8> {
        let mut record = vec![0x08, kind, 0x10, 0xff, 0x01, 0x1a, u8::try_from(data.len()).unwrap()];
        record.extend_from_slice(data);
        let length = u64::try_from(record.len()).unwrap();
        let padding = (8 - length % 8) % 8;
        let head = if padding == 0 { length } else { length | (0x80 | padding) << 56 };
        record.extend(vec![0; usize::try_from(padding).unwrap()]);
        [head.to_le_bytes().to_vec(), record].concat()
    }

    fn entry(index: u8) -> Vec<u8> {
        framed(2, &[0x10, 2, 0x18, index, 0x22, 3, b'a', b'b', b'c'])
    }

    #[test]
    fn the_last_entry_is_found_in_the_newest_segment_that_has_one() {
        let directory = tempfile::tempdir().unwrap();
        let wal = directory.path();
        assert_eq!(last_index(&wal.join("none")).unwrap(), 0);
        let segment = |name: &str, frames: &[Vec<u8>]| {
            fs::write(wal.join(name), [frames.concat(), vec![0; 64]].concat()).unwrap();
        };
        segment("0000000000000000-0000000000000000.wal", &[framed(4, &[]), entry(1), entry(2)]);
        assert_eq!(last_index(wal).unwrap(), 2);
        segment("0000000000000001-0000000000000003.wal", &[framed(4, &[])]);
        fs::write(wal.join("0.tmp"), entry(99)).unwrap();
        assert_eq!(last_index(wal).unwrap(), 2);
        // Entries of a leader that lost are replaced. A snapshot may go further than any entry.
        segment("0000000000000001-0000000000000003.wal", &[entry(7), entry(5)]);
        assert_eq!(last_index(wal).unwrap(), 5);
        segment("0000000000000001-0000000000000003.wal", &[entry(5), framed(5, &[0x08, 0x81, 0x01])]);
        assert_eq!(last_index(wal).unwrap(), 129);
    }

    #[test]
    fn what_is_not_whole_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let torn = [entry(1), entry(2)[..20].to_vec()].concat();
        fs::write(directory.path().join("0.wal"), torn).unwrap();
        assert_eq!(last_index(directory.path()).unwrap(), 1);
        fs::write(directory.path().join("0.wal"), [0xff; 40]).unwrap();
        assert_eq!(last_index(directory.path()).unwrap(), 0);
    }
}
