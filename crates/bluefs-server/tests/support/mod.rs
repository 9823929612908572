//! Who may use a server's volumes in tests.

use std::cell::Cell;

use bluefs::Time;
use bluefs_server::{Access, Grant};

/// Everybody may do everything. Sessions are numbered from 1, so that a run can be repeated.
#[derive(Default)]
pub struct Numbered(Cell<u64>);

impl Access for Numbered {
    fn check(&self, _: &[u8], _: &[u8], _: Time) -> Option<Grant> {
        Some(Grant { invitation: 0, read_only: false })
    }

    fn stands(&self, _: u64, _: Time) -> bool {
        true
    }

    fn random(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}
