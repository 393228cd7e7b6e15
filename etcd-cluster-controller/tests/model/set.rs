//! Sets of seats.

use std::fmt;

/// How many seats there are. Eleven members exist at the peak of a surge at seven. An optimized build also has room for
/// members that have left, and whose endpoints are in use until the control plane has rolled out.
pub const SEATS: usize = if cfg!(debug_assertions) { 11 } else { 14 };

/// A set of seats.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set(u16);

impl Set {
    pub fn has(self, seat: usize) -> bool {
        self.0 & (1 << seat) != 0
    }

    pub fn put(&mut self, seat: usize, is_in: bool) {
        if is_in { self.0 |= 1 << seat } else { self.0 &= !(1 << seat) }
    }

    pub fn with(mut self, seat: usize) -> Self {
        self.put(seat, true);
        self
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..SEATS).filter(move |seat| self.has(*seat))
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Swaps two seats.
    pub fn swap(&mut self, one: usize, other: usize) {
        let (has_one, has_other) = (self.has(one), self.has(other));
        self.put(one, has_other);
        self.put(other, has_one);
    }

    /// The set without a seat. The seats behind it move up by one.
    pub fn without(self, seat: usize) -> Self {
        let before = (1_u16 << seat) - 1;
        Self((self.0 & before) | ((self.0 >> 1) & !before))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}
