//! Running a test inside the real image of a database: the test program starts itself again in namespaces of its
//! own, in the file system of the image, as its first process and as the account that the official images use. When
//! it ends or is killed, the kernel takes everything with it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::rootfs::rootfs;

/// The versions of PostgreSQL that everything is tried with.
const VERSIONS: [&str; 3] = ["15", "17", "18"];

/// Set inside, to the version.
const INSIDE: &str = "KEELSON_TEST_INSIDE";

/// Folders of its own on top of the image, which can't be written to; then the programs, which are static.
const ENTER: &str = r#"
root=$1 scenario=$2; shift 2
ip link set lo up
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
for folder in tmp run mnt dev; do mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"; done
mkdir -m 1777 "$root/dev/shm"
for device in null zero random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t proc proc "$root/proc"
for program in "$@"; do
    touch "$root/mnt/${program##*/}"
    mount --bind "$program" "$root/mnt/${program##*/}"
done
touch "$root/mnt/program"
mount --bind "$1" "$root/mnt/program"
exec chroot --userspec=999:999 "$root" /mnt/program --exact "$scenario" --nocapture --test-threads=1
"#;

/// Runs a scenario, which is the test of that name, in each version; or here, if this is inside already. `programs`
/// are to be found in `/mnt` inside.
pub fn each_version<F: Future<Output = ()>>(name: &str, programs: &[&Path], scenario: impl FnOnce() -> F) {
    if std::env::var_os(INSIDE).is_some() {
        std::thread::spawn(|| {
            // Whoever is outside holds the other end. The first process takes all others with it.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(1);
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
        let limit = std::time::Duration::from_secs(600);
        let done = runtime.unwrap().block_on(async { tokio::time::timeout(limit, scenario()).await });
        return done.expect("the scenario hangs");
    }
    let tried = VERSIONS.iter().filter_map(|version| enter(name, programs, version).err());
    let failed: Vec<String> = tried.collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn enter(name: &str, programs: &[&Path], version: &str) -> Result<(), String> {
    let root = rootfs(&format!("postgres:{version}")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--ipc", "--pid", "--fork", "sh", "-ec", ENTER, "sh"]);
    command.arg(root).arg(name).arg(std::env::current_exe().unwrap()).args(programs).env(INSIDE, version);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Closes when this process ends, however it ends.
    let lifeline = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(lifeline);
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("PostgreSQL {version}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
}

/// The version that this runs in.
pub fn version() -> u32 {
    std::env::var(INSIDE).unwrap().parse().unwrap()
}
