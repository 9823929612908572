//! Room on the store's disk: what takes more of it is refused before there is none, so that the server goes on and
//! something can be removed (docs/decisions/0304).

use bluefs::tree::{Changes, Tree};

use super::Volume;

impl Volume {
    /// Whether the store's disk has little room left.
    pub fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// Whether these changes take more room, and there is little. What is written over what is there takes none.
    pub(super) fn has_no_room_for<T: Tree>(&self, tree: &T, changes: &Changes) -> Result<bool, T::Error> {
        if !self.is_short {
            return Ok(false);
        }
        let before = tree.space()?;
        let takes =
            changes.space.is_some_and(|now| now.used_bytes > before.used_bytes || now.used_inodes > before.used_inodes);
        Ok(takes || changes.xattrs.values().any(Option::is_some))
    }
}
