//! Lists of endpoints that API servers use.

use crate::set::Set;

/// Lists of endpoints that API servers use: two that older machines may have, and the one of the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InUse {
    older: [Set; 2],
    present: Set,
}

impl InUse {
    pub fn only(list: Set) -> Self {
        Self { older: [list; 2], present: list }
    }

    pub fn is_empty(self) -> bool {
        self.present.is_empty()
    }

    pub fn has(self, seat: usize) -> bool {
        self.lists().into_iter().any(|list| list.has(seat))
    }

    pub fn lists(self) -> [Set; 3] {
        [self.older[0], self.older[1], self.present]
    }

    /// The present list of the control plane, if some machines may still have another one.
    pub fn to_roll_out(self) -> Option<Set> {
        (self.older != [self.present; 2]).then_some(self.present)
    }

    /// The lists after the control plane has been given another list. `None`: there is room for only two older lists,
    /// or the list is the present one.
    pub fn told(self, list: Set) -> Option<Self> {
        let mut lists = self.lists();
        lists.sort_unstable();
        let older = match lists {
            [one, two, three] if one == two => [two, three],
            [one, two, three] if two == three => [one, two],
            _ => return None,
        };
        (list != self.present).then_some(Self { older, present: list })
    }

    /// Swaps two seats.
    pub fn swap(&mut self, one: usize, other: usize) {
        self.older.iter_mut().for_each(|list| list.swap(one, other));
        self.present.swap(one, other);
    }

    pub fn without(self, seat: usize) -> Self {
        Self { older: self.older.map(|list| list.without(seat)), present: self.present.without(seat) }
    }
}
