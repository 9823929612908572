//! `speculator volume`.

use std::path::Path;

use external_sync::volume::{self, Condition, MountedVolume, Room};

use crate::args::VolumeAction;
use crate::error::Failure;
use crate::generate::print;

const STATUS_DAMAGED: u8 = 1;

/// Does it; the status is 0, or for a check 1 if the volume is damaged.
pub fn perform(action: VolumeAction) -> Result<u8, Failure> {
    match action {
        VolumeAction::Create { image, size, journal, sparse } => {
            let room = if sparse { Room::Sparse } else { Room::Reserved };
            volume::create(&image, size, journal, room)?;
        }
        VolumeAction::Mount { image, dir } => {
            let mounted = volume::mount(&image, &dir)?;
            warn_of_doubt(&mounted);
            mounted.keep();
        }
        VolumeAction::Umount { dir } => volume::umount(&dir)?,
        VolumeAction::Check { image } => return check(&image),
    }
    Ok(0)
}

/// A volume that keeps nothing is mounted all the same: it can be read.
pub fn warn_of_doubt(volume: &MountedVolume) {
    if let Some(why) = volume.doubt() {
        let dir = volume.dir().display();
        tell!("speculator: the volume on {dir} does not keep its promises: {why}; see speculator doctor");
    }
}

fn check(image: &Path) -> Result<u8, Failure> {
    let report = volume::check(image)?;
    print(&report.details)?;
    if !report.is_volume {
        print("note: this ext4 file system was not made by speculator volume create\n")?;
    }
    let verdict = match report.condition {
        Condition::Clean => "clean",
        Condition::NeedsReplay => "clean; it was not unmounted, and its next mount replays the journal",
        Condition::Damaged => "damaged; make a copy, then repair it with e2fsck -f",
    };
    print(&format!("{}: {verdict}\n", image.display()))?;
    Ok(if report.condition == Condition::Damaged { STATUS_DAMAGED } else { 0 })
}
