//! Sets of seats.

use std::fmt;

/// Seats there is room for. A set of seats is one byte.
pub const SEATS: usize = 8;

/// A set of seats.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set(u8);

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

    /// The same without a seat, and those behind it one further to the front.
    pub fn without(self, seat: usize) -> Self {
        let before = (1_u8 << seat) - 1;
        Self((self.0 & before) | ((self.0 >> 1) & !before))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}
