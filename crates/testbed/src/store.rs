//! The image store that every node starts with: all images imported and unpacked once, then shared
//! by hard links, so that a node has them the moment it boots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::components::{CONTAINERD_SOCKET, containerd_settings};
use crate::error::{During, Result};
use crate::gobuild::Programs;
use crate::layout::{Cache, sha256};
use crate::progress::Progress;
use crate::shell::{run, run_command};

/// Starts a container runtime in namespaces of its own, on an empty folder, and imports into it.
const FILL: &str = r#"
lib=$1 settings=$2 socket=$3; shift 3
mount --bind "$lib" /var/lib
mount -t tmpfs tmpfs /run
containerd --config "$settings" --log-level warn &
until ctr --address "$socket" version >/dev/null 2>&1; do
    kill -0 $! || exit 1
    sleep 0.1
done
for archive in "$@"; do
    ctr --address "$socket" --namespace k8s.io images import --snapshotter overlayfs "$archive"
done
kill $! && wait
"#;

/// Makes the store of these archives, unless it is there.
pub(crate) fn fill(
    cache: &Cache,
    progress: &Progress,
    programs: &Programs,
    archives: &[PathBuf],
) -> Result<PathBuf> {
    let key = sha256(format!("{FILL}{archives:?}").as_bytes());
    let entry = format!("images-{}", &key[..16]);
    if let Some(folder) = cache.finished(&entry) {
        return Ok(folder.join("lib/containerd"));
    }
    let made = progress.step("unpacking the images", || {
        cache.entry(&entry, |folder| {
            let (lib, settings) = (folder.join("lib"), folder.join("containerd.toml"));
            fs::create_dir_all(&lib).during("creating", &lib)?;
            fs::write(&settings, containerd_settings(Path::new("/nonexistent")))
                .during("writing", &settings)?;
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
            command.args(["sh", "-ec", FILL, "sh"]).arg(&lib).arg(&settings).arg(CONTAINERD_SOCKET);
            command.args(archives).env("PATH", programs.path());
            run_command(command).map(drop)
        })
    })?;
    Ok(made.join("lib/containerd"))
}

/// Gives a node its copy. Unpacked files and layers are never written to again, so links will do;
/// the two small databases beside them are.
pub(crate) fn copy(store: &Path, to: &Path) -> Result<()> {
    let (from, target) = (store.display().to_string(), to.display().to_string());
    if run(&["cp", "-al", &from, &target]).is_err() {
        // Another file system: no links across.
        let _ = fs::remove_dir_all(to);
        run(&["cp", "-a", &from, &target])?;
        return Ok(());
    }
    for database in
        ["io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db"]
    {
        let (original, own) = (store.join(database), to.join(database));
        fs::remove_file(&own).during("unlinking", &own)?;
        fs::copy(&original, &own).during("copying", &original)?;
    }
    Ok(())
}
