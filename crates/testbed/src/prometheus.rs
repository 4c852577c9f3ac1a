//! Prometheus and promtool, from Debian's package: unpacked into the cache and not installed, which would start a server.

use std::path::PathBuf;

use crate::debian::{apt, unpack_package};
use crate::error::Result;
use crate::layout::Cache;
use crate::progress::Progress;

/// Fetches Prometheus, if it is not in the cache yet, and says in which folder the programs `prometheus` and `promtool`
/// are.
pub fn prometheus() -> Result<PathBuf> {
    let (cache, entry) = (Cache::open()?, "prometheus-1");
    if let Some(folder) = cache.finished(entry) {
        return Ok(folder.join("usr/bin"));
    }
    let folder = Progress::new(&cache).step("fetching Prometheus from Debian", || {
        cache.entry(entry, |folder| {
            // A machine that is new knows of no packages yet, or of none that are still there.
            unpack_package("prometheus", folder, folder).or_else(|_| {
                apt(&["update"])?;
                unpack_package("prometheus", folder, folder)
            })
        })
    })?;
    Ok(folder.join("usr/bin"))
}
