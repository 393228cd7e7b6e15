//! SHA-256 sums, in the form of `sha256sum`.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest;

/// A SHA-256 sum; shown as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The sum of all that remains in `reader`.
    ///
    /// # Errors
    /// When reading fails.
    pub fn of(reader: &mut impl Read) -> io::Result<Self> {
        Self::of_copy(reader, &mut io::sink())
    }

    /// The sum of all that remains in `reader`, which is also written to `copy`.
    ///
    /// # Errors
    /// When reading or writing fails.
    pub fn of_copy(reader: &mut impl Read, copy: &mut impl Write) -> io::Result<Self> {
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(hasher.into()),
                count => {
                    hasher.update(&buffer[..count]);
                    copy.write_all(&buffer[..count])?;
                }
            }
        }
    }

    /// The sum for the file `name` in the output of `sha256sum`. If the text is nothing but a sum, it applies to any
    /// name.
    pub fn in_sums(text: &str, name: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        if let Ok(bare) = text.trim().parse() {
            return Some(bare);
        }
        lines.find_map(|line| {
            let (sum, file) = line.split_once(char::is_whitespace)?;
            // `*` marks binary mode. A path may precede the name.
            let file = file.trim_start().trim_start_matches('*').rsplit('/').next()?;
            if file == name { sum.parse().ok() } else { None }
        })
    }
}

impl From<sha2::Sha256> for Sha256 {
    fn from(hasher: sha2::Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Sha256 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a SHA-256 sum is 64 hexadecimal digits";
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(WRONG.to_owned());
        }
        let mut sum = [0; 32];
        for (byte, digits) in sum.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = str::from_utf8(digits).map_err(|_| WRONG)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| WRONG)?;
        }
        Ok(Self(sum))
    }
}

impl From<Sha256> for String {
    fn from(sum: Sha256) -> Self {
        sum.to_string()
    }
}

impl TryFrom<String> for Sha256 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn sums_up() {
        assert_eq!(Sha256::of(&mut b"abc".as_slice()).unwrap().to_string(), OF_ABC);
    }

    #[test]
    fn finds_the_sum_of_a_file() {
        let zero = "0".repeat(64);
        let sums = format!("{zero}  other.tar.gz\n\n{OF_ABC} *./dir/abc.tar.gz\n");
        let found = |name| Sha256::in_sums(&sums, name).map(|sum| sum.to_string());
        assert_eq!(found("abc.tar.gz").as_deref(), Some(OF_ABC));
        assert_eq!(found("other.tar.gz"), Some(zero));
        assert_eq!(found("bc.tar.gz"), None);
        assert_eq!(Sha256::in_sums(&format!("{OF_ABC}\n"), "any").map(|s| s.to_string()).as_deref(), Some(OF_ABC));
        assert_eq!(Sha256::in_sums("nonsense abc.tar.gz", "abc.tar.gz"), None);
    }

    #[test]
    fn refuses_what_is_no_sum() {
        for text in ["", "abc", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert!(text.parse::<Sha256>().is_err(), "{text}");
        }
    }
}
