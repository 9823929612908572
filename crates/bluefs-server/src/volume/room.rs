//! Room on the store's disk: what takes more of it is refused before there is none, so that the server goes on and
//! something can be removed (docs/decisions/0304, 0309).

use bluefs::tree::{Changes, Tree};
use bluefs_store::Left;

use super::Volume;

/// What a row takes up in a record beside its contents, about.
const ROW_BYTES: u64 = 64;

impl Volume {
    /// What changes may still have of the store's disk; `None`: as much as anybody wants. `may_free`: whether that is
    /// enough to free files that nobody has open.
    pub fn set_left(&mut self, left: Option<Left>, may_free: bool) {
        (self.left, self.may_free) = (left, may_free);
    }

    /// How many rows may be removed in one batch beside what else it does.
    pub(super) fn removed_rows_max(&self) -> usize {
        self.left.map_or(usize::MAX, |left| usize::try_from(left.rest / ROW_BYTES).unwrap_or(usize::MAX))
    }

    /// Whether there is no room for these changes. `batch_bytes`: of those that are in the same batch. What takes more
    /// room for good is refused first, then what is written over what is there.
    pub(super) fn has_no_room_for<T: Tree>(
        &self,
        tree: &T,
        changes: &Changes,
        batch_bytes: u64,
    ) -> Result<bool, T::Error> {
        let Some(left) = self.left else { return Ok(false) };
        let (before, written) = (tree.space()?, changes.blocks.values().flatten().count());
        let now = changes.space.unwrap_or(before);
        let takes = now.used_bytes > before.used_bytes || now.used_inodes > before.used_inodes;
        // Who cuts a file within a block writes what is left of it.
        let gives_back = now.used_bytes < before.used_bytes && written <= 1;
        let bytes = bytes_of(changes);
        let all = batch_bytes.saturating_add(bytes);
        Ok(!match (takes || changes.xattrs.values().any(Option::is_some), written > 0 && !gives_back) {
            (true, _) => all <= left.new,
            (false, true) => all <= left.over,
            (false, false) => left.has_rest(bytes, batch_bytes),
        })
    }
}

/// Bytes of the record that these become, about.
fn bytes_of(changes: &Changes) -> u64 {
    let blocks = changes.blocks.values().flatten().map(Vec::len);
    let values = changes.xattrs.values().flatten().map(Vec::len);
    let targets = changes.inodes.values().flatten().map(|inode| inode.target.len());
    let rows = changes.blocks.len() + changes.xattrs.len() + changes.inodes.len() + changes.entries.len();
    (blocks.chain(values).chain(targets).sum::<usize>() as u64).saturating_add(rows as u64 * ROW_BYTES)
}
