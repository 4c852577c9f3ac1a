//! The file system of an image, unpacked: for tests that need a database's own programs and no cluster.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::debian::image_archive;
use crate::error::{During, Error, Result};
use crate::layout::{Cache, sha256};
use crate::progress::Progress;

/// Where the file system of one of the testbed's database images is (`postgres:17`). It is made once for
/// all; whoever uses it must not change it: mount it read-only, with folders of your own on top.
pub fn rootfs(image: &str) -> Result<PathBuf> {
    let cache = Cache::open()?;
    let progress = Progress::new(&cache);
    let archive = image_archive(&cache, &progress, image)?;
    // The folder of an archive is named after all that it was made from.
    let key = sha256(archive.to_string_lossy().as_bytes());
    let entry = format!("rootfs-{}-{}", image.replace([':', '/'], "-"), &key[..16]);
    if let Some(folder) = cache.finished(&entry) {
        return Ok(folder);
    }
    progress.step(&format!("unpacking {image}"), || cache.entry(&entry, |folder| unpack(&archive, folder)))
}

/// Lays the layers of an archive over each other. None of the testbed's images has a layer that removes
/// what one below it has.
fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let layers = layers(archive)?;
    let open = || File::open(archive).during("opening", archive);
    let mut outer = tar::Archive::new(open()?);
    for entry in outer.entries().during("reading", archive)? {
        let entry = entry.during("reading", archive)?;
        let name = entry.path().during("reading", archive)?.display().to_string();
        if layers.contains(&name) {
            let mut layer = tar::Archive::new(entry);
            layer.set_preserve_permissions(true);
            layer.set_preserve_ownerships(true);
            layer.unpack(folder).during("unpacking into", folder)?;
        }
    }
    Ok(())
}

/// The names of the layers in an archive, which has them in their order.
fn layers(archive: &Path) -> Result<Vec<String>> {
    let file = File::open(archive).during("opening", archive)?;
    let mut texts = BTreeMap::new();
    for entry in tar::Archive::new(file).entries().during("reading", archive)? {
        let mut entry = entry.during("reading", archive)?;
        let name = entry.path().during("reading", archive)?.display().to_string();
        // Layers are megabytes.
        if entry.size() < 1 << 16 {
            let mut text = Vec::new();
            entry.read_to_end(&mut text).during("reading", archive)?;
            texts.insert(name, text);
        }
    }
    let json = |name: &str| texts.get(name).and_then(|text| serde_json::from_slice::<Value>(text).ok());
    let blob = |digest: &Value| digest.as_str().map(|digest| format!("blobs/{}", digest.replace(':', "/")));
    let found = || -> Option<Vec<String>> {
        let index = json("index.json")?;
        let manifest = json(&blob(index.pointer("/manifests/0/digest")?)?)?;
        manifest.get("layers")?.as_array()?.iter().map(|layer| blob(layer.get("digest")?)).collect()
    };
    found().ok_or_else(|| Error::Refused(format!("{} is no archive of an image", archive.display())))
}
