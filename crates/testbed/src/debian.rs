//! What comes from Debian: packages this machine lacks, and the file systems of the database
//! images, laid out like the official ones (same account, same paths, same environment).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{During, Error, Result};
use crate::image::{Image, Settings};
use crate::layout::{Cache, sha256};
use crate::progress::Progress;
use crate::shell::{run, run_command};

/// A program that must be there, and the package that has it.
const PROGRAMS: [(&str, &str); 10] = [
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("/usr/sbin/nft", "nftables"),
    ("/usr/sbin/ip", "iproute2"),
    ("/usr/bin/mmdebstrap", "mmdebstrap"),
    ("/usr/sbin/mkfs.xfs", "xfsprogs"),
    ("/usr/sbin/xfs_db", "xfsprogs"),
    ("/usr/bin/nsenter", "util-linux"),
    ("/usr/sbin/losetup", "mount"),
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
];

/// Installs what this machine lacks.
pub(crate) fn install_packages(progress: &Progress) -> Result<()> {
    let merged = |path: &str| path.strip_prefix("/usr").map(PathBuf::from).unwrap_or_default();
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(path, _)| !Path::new(path).exists() && !merged(path).exists())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    progress.step(&format!("installing {} from Debian", missing.join(", ")), || {
        apt(&["update"])?;
        apt(&[&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat())
    })
}

pub(crate) fn apt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    run_command(command).map(drop)
}

/// How one image is made.
struct Recipe {
    image: &'static str,
    suite: &'static str,
    packages: &'static [&'static str],
    account: &'static str,
    home: &'static str,
    /// Folders that belong to the account, with their mode.
    folders: &'static [(&'static str, u32)],
    locale: bool,
    env: &'static [&'static str],
    cmd: &'static [&'static str],
}

const POSTGRES_FOLDERS: &[(&str, u32)] =
    &[("var/lib/postgresql", 0o1777), ("var/lib/postgresql/data", 0o1777), ("run/postgresql", 0o3777)];

const RECIPES: [Recipe; 4] = [
    Recipe {
        image: "postgres:15",
        suite: "bookworm",
        packages: &["locales", "postgresql-15"],
        account: "postgres",
        home: "/var/lib/postgresql",
        folders: POSTGRES_FOLDERS,
        locale: true,
        env: &[
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin",
            "LANG=en_US.utf8",
            "PG_MAJOR=15",
            "PGDATA=/var/lib/postgresql/data",
        ],
        cmd: &["postgres"],
    },
    Recipe {
        image: "postgres:17",
        suite: "trixie",
        packages: &["locales", "postgresql-17"],
        account: "postgres",
        home: "/var/lib/postgresql",
        folders: POSTGRES_FOLDERS,
        locale: true,
        env: &[
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/17/bin",
            "LANG=en_US.utf8",
            "PG_MAJOR=17",
            "PGDATA=/var/lib/postgresql/data",
        ],
        cmd: &["postgres"],
    },
    Recipe {
        image: "postgres:18",
        suite: "sid",
        packages: &["locales", "postgresql-18"],
        account: "postgres",
        home: "/var/lib/postgresql",
        folders: POSTGRES_FOLDERS,
        locale: true,
        env: &[
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/18/bin",
            "LANG=en_US.utf8",
            "PG_MAJOR=18",
            // The official image moved it with version 18.
            "PGDATA=/var/lib/postgresql/18/docker",
        ],
        cmd: &["postgres"],
    },
    Recipe {
        image: "mysql:9.7",
        suite: "sid",
        packages: &["mysql-server-core", "mysql-client-core", "tzdata"],
        account: "mysql",
        home: "/var/lib/mysql",
        folders: &[("var/lib/mysql", 0o1777), ("var/lib/mysql-files", 0o750), ("run/mysqld", 0o1777)],
        locale: false,
        env: &["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "MYSQL_MAJOR=9.7"],
        cmd: &["mysqld"],
    },
];

/// Images that no node has from the start: [`Cluster::load_debian`](crate::Cluster::load_debian) brings them.
const ON_DEMAND: [Recipe; 1] = [Recipe {
    image: "patroni:17",
    suite: "trixie",
    packages: &["locales", "postgresql-17", "patroni"],
    account: "postgres",
    home: "/var/lib/postgresql",
    folders: POSTGRES_FOLDERS,
    locale: true,
    env: &[
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/17/bin",
        "LANG=en_US.utf8",
        "PG_MAJOR=17",
    ],
    cmd: &["patroni"],
}];

/// The account of the database in the official images.
const ACCOUNT: u32 = 999;

/// Makes the images that are not in the cache yet; returns their archives.
pub(crate) fn make_images(cache: &Cache, progress: &Progress) -> Result<Vec<PathBuf>> {
    let mut archives = vec![busybox(cache, progress)?];
    for recipe in &RECIPES {
        archives.push(recipe.archive(cache, progress)?);
    }
    Ok(archives)
}

/// The archive of one of them.
pub(crate) fn image_archive(cache: &Cache, progress: &Progress, image: &str) -> Result<PathBuf> {
    let all = RECIPES.iter().chain(&ON_DEMAND);
    match all.clone().find(|recipe| recipe.image == image) {
        Some(recipe) => recipe.archive(cache, progress),
        None => {
            let known: Vec<&str> = all.map(|recipe| recipe.image).collect();
            Err(Error::Refused(format!("there is no image {image}: use one of {}", known.join(", "))))
        }
    }
}

impl Recipe {
    /// Its archive, made if it is not in the cache yet.
    fn archive(&self, cache: &Cache, progress: &Progress) -> Result<PathBuf> {
        let entry = format!("image-{}-{}", self.image.replace(':', "-"), self.key());
        let folder = match cache.finished(&entry) {
            Some(folder) => folder,
            None => {
                install_packages(progress)?;
                progress.step(&format!("making the image {}", self.image), || {
                    cache.entry(&entry, |folder| self.make(folder))
                })?
            }
        };
        Ok(folder.join("image.tar"))
    }

    fn key(&self) -> String {
        let text = format!(
            "{}{}{:?}{:?}{:?}{:?}",
            self.image,
            self.suite,
            self.folders,
            self.env,
            self.cmd,
            self.flags()
        );
        sha256(text.as_bytes())[..16].to_owned()
    }

    fn flags(&self) -> Vec<String> {
        let mut flags: Vec<String> = vec!["--mode=root".into(), "--variant=minbase".into(), "--quiet".into()];
        // Sid's index can be past its date on a mirror that is not refreshed every day.
        flags.push("--aptopt=Acquire::Check-Valid-Until \"false\"".into());
        for folder in ["man", "doc", "info", "locale"] {
            flags.push(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
        }
        let Recipe { account, home, packages, .. } = self;
        flags.push(format!("--include={}", packages.join(",")));
        // The account must be there, under its number, before a package makes one of its own.
        flags.push(format!(
            "--essential-hook=echo {account}:x:{ACCOUNT}: >> \"$1/etc/group\"; \
             echo {account}:x:{ACCOUNT}:{ACCOUNT}::{home}:/bin/bash >> \"$1/etc/passwd\"; \
             mkdir -p \"$1/etc/postgresql-common\"; \
             echo create_main_cluster = false > \"$1/etc/postgresql-common/createcluster.conf\""
        ));
        if self.locale {
            flags.push("--customize-hook=chroot \"$1\" localedef -i en_US -f UTF-8 en_US.UTF-8".into());
        }
        flags
    }

    fn make(&self, folder: &Path) -> Result<()> {
        let layer = folder.join("layer.tar");
        let source = format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {} {} main",
            debian_mirror()?,
            self.suite
        );
        let mut command = Command::new("mmdebstrap");
        command.args(self.flags()).arg(self.suite).arg(&layer).arg(source).env("TMPDIR", folder);
        run_command(command)?;
        let settings = Settings {
            env: self.env.iter().map(|&setting| setting.to_owned()).collect(),
            cmd: self.cmd.iter().map(|&word| word.to_owned()).collect(),
            ..Settings::default()
        };
        let folders = folder.join("folders.tar");
        self.write_folders(&folders).during("writing", &folders)?;
        Image::new(self.image, vec![layer.clone(), folders], settings).write(&folder.join("image.tar"))?;
        fs::remove_file(&layer).during("removing", &layer)
    }

    /// In a layer of their own, since the one below is cleaned of all that is in `/run`.
    fn write_folders(&self, layer: &Path) -> std::io::Result<()> {
        let mut tar = tar::Builder::new(fs::File::create(layer)?);
        for (path, mode) in self.folders {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            header.set_mode(*mode);
            header.set_uid(ACCOUNT.into());
            header.set_gid(ACCOUNT.into());
            tar.append_data(&mut header, format!("{path}/"), std::io::empty())?;
        }
        tar.finish()
    }
}

/// The mirror that this machine's own apt uses: none is named here.
fn debian_mirror() -> Result<String> {
    let listed = run(&["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])?;
    listed.lines().find(|line| line.trim_end_matches('/').ends_with("/debian")).map(str::to_owned).ok_or_else(
        || Error::Refused("apt knows no Debian mirror: check its sources, then `apt-get update`".into()),
    )
}

/// Busybox: for test pods, and to hold a pod's namespaces open (`sleep` is all that this takes).
/// With the C library beside it, so that it looks up names the way a database does.
fn busybox(cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let entry = "image-busybox-3";
    if let Some(folder) = cache.finished(entry) {
        return Ok(folder.join("image.tar"));
    }
    let folder = progress.step("making the image busybox", || {
        cache.entry(entry, |folder| {
            let root = folder.join("root");
            for package in ["busybox", "libc6"] {
                unpack_package(package, folder, &root)?;
            }
            busybox_image(&root, folder)?.write(&folder.join("image.tar"))?;
            fs::remove_dir_all(&root).during("removing", &root)
        })
    })?;
    Ok(folder.join("image.tar"))
}

/// Downloads a package and lays its files out below `root`, without its documentation.
pub(crate) fn unpack_package(package: &str, folder: &Path, root: &Path) -> Result<()> {
    let mut download = Command::new("apt-get");
    download.args(["download", package]).current_dir(folder);
    run_command(download)?;
    let files = fs::read_dir(folder).during("reading", folder)?.flatten().map(|entry| entry.path());
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "deb")) {
        run(&["dpkg-deb", "-x", &file.to_string_lossy(), &root.to_string_lossy()])?;
        fs::remove_file(&file).during("removing", &file)?;
    }
    let documentation = root.join("usr/share");
    match fs::remove_dir_all(&documentation) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).during("removing", &documentation)
        }
        _ => Ok(()),
    }
}

/// The image that holds a pod's namespaces open.
pub(crate) const SANDBOX_IMAGE: &str = "busybox:stable";

fn busybox_image(root: &Path, folder: &Path) -> Result<Image> {
    let program = [root.join("bin/busybox"), root.join("usr/bin/busybox")]
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| Error::Refused("the package busybox has no busybox".into()))?;
    let applets = run(&["chroot", &root.to_string_lossy(), "/bin/busybox", "--list"])?;
    for applet in applets.lines().filter(|&applet| applet != "busybox") {
        let link = program.with_file_name(applet);
        std::os::unix::fs::symlink("busybox", &link).during("linking", &link)?;
    }
    for (name, text) in [
        ("etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n"),
        ("etc/nsswitch.conf", "hosts: files dns\n"),
    ] {
        fs::write(root.join(name), text).during("writing", root.join(name))?;
    }
    let temporary = root.join("tmp");
    fs::create_dir_all(&temporary).during("creating", &temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).during("opening up", &temporary)?;
    let layer = folder.join("layer.tar");
    run(&["tar", "-cf", &layer.to_string_lossy(), "--numeric-owner", "-C", &root.to_string_lossy(), "."])?;
    let cmd = vec!["/bin/sleep".to_owned(), "infinity".to_owned()];
    let env = vec!["PATH=/bin:/usr/bin".to_owned()];
    Ok(Image::new(SANDBOX_IMAGE, vec![layer], Settings { cmd, env, ..Settings::default() }))
}
