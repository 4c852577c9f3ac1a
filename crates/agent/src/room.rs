//! How much room the volume has.

use std::path::Path;
use std::time::Duration;

use keelson_api::instance::paths;
use tokio::sync::watch;

/// How often it is looked at.
const OFTEN: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// A volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub size: u64,
    /// What is free.
    pub free: u64,
}

impl Room {
    /// The volume, as it is now; none where nothing is known.
    pub fn now() -> Room {
        Room::of(Path::new(paths::VOLUME))
    }

    /// The same, looked at again and again, on a thread of its own: a disk that hangs holds nobody else up.
    pub fn follow() -> watch::Receiver<Room> {
        let (sender, receiver) = watch::channel(Room::now());
        std::thread::spawn(move || {
            while sender.send(Room::now()).is_ok() {
                std::thread::sleep(OFTEN);
            }
        });
        receiver
    }

    fn of(path: &Path) -> Room {
        let Ok(found) = nix::sys::statvfs::statvfs(path) else { return Room::default() };
        let unit = found.fragment_size();
        Room { size: found.blocks() * unit, free: found.blocks_available() * unit }
    }

    /// Whether there is hardly any left: less than a database needs to go on for a while, and to end in good order.
    /// What is not known is not full.
    pub fn is_full(self) -> bool {
        self.size > 0 && self.free < self.reserve()
    }

    /// What has to stay free.
    pub fn reserve(self) -> u64 {
        (self.size / 50).clamp(32 * MIB, 1024 * MIB)
    }

    /// For a person.
    pub fn told(self) -> String {
        let (free, size) = (self.free / MIB, self.size / MIB);
        format!(
            "the volume has {free} MiB left of {size} MiB, and writes are about to fail: raise spec.storage"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_full_before_nothing_is_left() {
        let gib = 1024 * MIB;
        for (size, free, full) in [
            (gib, 31 * MIB, true),
            (gib, 33 * MIB, false),
            (100 * gib, gib - 1, true),
            (100 * gib, gib, false),
            (0, 0, false),
        ] {
            assert_eq!(Room { size, free }.is_full(), full, "{free} of {size}");
        }
        assert!(Room::of(Path::new("/")).size > 0);
        assert_eq!(Room::of(Path::new("/nowhere")), Room::default());
    }
}
