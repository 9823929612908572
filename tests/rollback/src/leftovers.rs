//! What a run could leave beside files and processes: segments of memory and mounts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// What was there before.
#[derive(Debug)]
pub struct Before {
    segments: BTreeSet<String>,
    mounts: usize,
}

impl Before {
    /// Looks.
    pub fn look() -> Before {
        Before { segments: orphaned_segments(), mounts: mounts() }
    }

    /// What is there now and was not there before.
    pub fn compare(&self) -> Result<(), String> {
        let mut new = Vec::new();
        for _ in 0..20 {
            new = orphaned_segments().difference(&self.segments).cloned().collect::<Vec<_>>();
            if new.is_empty() {
                break;
            }
            // Others may be about to remove theirs.
            sleep(Duration::from_millis(100));
        }
        if !new.is_empty() {
            return Err(format!("shared memory is left over, by id: {}", new.join(" ")));
        }
        match mounts() {
            now if now > self.mounts => Err(format!("{} mounts are left over", now - self.mounts)),
            _ => Ok(()),
        }
    }
}

/// System V segments that nobody uses and whose creator is gone.
fn orphaned_segments() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let orphaned = text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (id, creator, users) = (words.get(1)?, words.get(4)?, words.get(6)?);
        (*users == "0" && !Path::new("/proc").join(creator).exists()).then(|| (*id).to_owned())
    });
    orphaned.collect()
}

fn mounts() -> usize {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter(|line| line.contains("speculator-rollback")).count()
}
