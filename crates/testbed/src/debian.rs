//! What comes from Debian: packages this machine lacks, and the file systems of the database
//! images, laid out like the official ones (same account, same paths, same environment).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{During, Error, Result};
use crate::image::{Image, Settings};
use crate::layout::{Cache, sha256};
use crate::progress::Progress;
use crate::shell::{run, run_command};

/// A program that must be there, and the package that has it.
const PROGRAMS: [(&str, &str); 9] = [
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("/usr/sbin/nft", "nftables"),
    ("/usr/sbin/ip", "iproute2"),
    ("/usr/bin/mmdebstrap", "mmdebstrap"),
    ("/usr/sbin/mkfs.ext4", "e2fsprogs"),
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

fn apt(arguments: &[&str]) -> Result<()> {
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
    /// Run by a shell in the new file system.
    finish: &'static str,
    env: &'static [&'static str],
    cmd: &'static [&'static str],
}

const POSTGRES_FINISH: &str = "localedef -i en_US -f UTF-8 en_US.UTF-8; \
     install -d -o postgres -g postgres -m 3777 /run/postgresql; \
     install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data";

const RECIPES: [Recipe; 4] = [
    Recipe {
        image: "postgres:15",
        suite: "bookworm",
        packages: &["locales", "postgresql-15"],
        account: "postgres",
        home: "/var/lib/postgresql",
        finish: POSTGRES_FINISH,
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
        finish: POSTGRES_FINISH,
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
        finish: POSTGRES_FINISH,
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
        finish: "install -d -o mysql -g mysql -m 1777 /run/mysqld; \
             install -d -o mysql -g mysql -m 750 /var/lib/mysql /var/lib/mysql-files",
        env: &["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "MYSQL_MAJOR=9.7"],
        cmd: &["mysqld"],
    },
];

/// The account of the database in the official images.
const ACCOUNT: u32 = 999;

/// Makes the images that are not in the cache yet; returns their archives.
pub(crate) fn make_images(cache: &Cache, progress: &Progress) -> Result<Vec<PathBuf>> {
    let mut archives = vec![busybox(cache, progress)?];
    for recipe in &RECIPES {
        let entry = format!("image-{}-{}", recipe.image.replace(':', "-"), recipe.key());
        let folder = match cache.finished(&entry) {
            Some(folder) => folder,
            None => progress.step(&format!("making the image {}", recipe.image), || {
                cache.entry(&entry, |folder| recipe.make(folder))
            })?,
        };
        archives.push(folder.join("image.tar"));
    }
    Ok(archives)
}

impl Recipe {
    fn key(&self) -> String {
        let text = format!(
            "{}{}{:?}{}{}{}{:?}{:?}{:?}",
            self.image,
            self.suite,
            self.packages,
            self.account,
            self.home,
            self.finish,
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
        let Recipe { account, home, packages, finish, .. } = self;
        flags.push(format!("--include={}", packages.join(",")));
        // The account must be there, under its number, before a package makes one of its own.
        flags.push(format!(
            "--essential-hook=echo {account}:x:{ACCOUNT}: >> \"$1/etc/group\"; \
             echo {account}:x:{ACCOUNT}:{ACCOUNT}::{home}:/bin/bash >> \"$1/etc/passwd\"; \
             mkdir -p \"$1/etc/postgresql-common\"; \
             echo create_main_cluster = false > \"$1/etc/postgresql-common/createcluster.conf\""
        ));
        flags.push(format!("--customize-hook=chroot \"$1\" sh -ec '{finish}'"));
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
        Image::new(self.image, vec![layer.clone()], settings).write(&folder.join("image.tar"))?;
        fs::remove_file(&layer).during("removing", &layer)
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
fn busybox(cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let entry = "image-busybox-2";
    if let Some(folder) = cache.finished(entry) {
        return Ok(folder.join("image.tar"));
    }
    let folder = progress.step("making the image busybox", || {
        cache.entry(entry, |folder| {
            let mut download = Command::new("apt-get");
            download.args(["download", "busybox-static"]).current_dir(folder);
            run_command(download)?;
            let package = fs::read_dir(folder)
                .during("reading", folder)?
                .flatten()
                .map(|entry| entry.path())
                .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
                .ok_or_else(|| Error::Refused("apt downloaded no package: see `apt-get download`".into()))?;
            let root = folder.join("root");
            run(&["dpkg-deb", "-x", &package.to_string_lossy(), &root.to_string_lossy()])?;
            let program = [root.join("usr/bin/busybox"), root.join("bin/busybox")]
                .into_iter()
                .find(|path| path.exists())
                .ok_or_else(|| Error::Refused("the package busybox-static has no busybox".into()))?;
            busybox_image(&program, folder)?.write(&folder.join("image.tar"))?;
            fs::remove_dir_all(&root).during("removing", &root)
        })
    })?;
    Ok(folder.join("image.tar"))
}

/// The image that holds a pod's namespaces open.
pub(crate) const SANDBOX_IMAGE: &str = "busybox:stable";

fn busybox_image(program: &Path, folder: &Path) -> Result<Image> {
    let applets = run(&[&program.to_string_lossy(), "--list"])?;
    let layer = folder.join("layer.tar");
    let mut tar = tar::Builder::new(fs::File::create(&layer).during("creating", &layer)?);
    let mut packed = || -> std::io::Result<()> {
        for (path, mode) in [("bin/", 0o755), ("etc/", 0o755), ("root/", 0o700), ("tmp/", 0o1777)] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            header.set_mode(mode);
            tar.append_data(&mut header, path, std::io::empty())?;
        }
        tar.append_path_with_name(program, "bin/busybox")?;
        for applet in applets.lines().filter(|&applet| applet != "busybox") {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            header.set_mode(0o777);
            tar.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
        }
        let accounts = b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n";
        let mut header = tar::Header::new_gnu();
        header.set_size(accounts.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "etc/passwd", accounts.as_slice())?;
        tar.finish()
    };
    packed().during("writing", &layer)?;
    let cmd = vec!["/bin/sleep".to_owned(), "infinity".to_owned()];
    let env = vec!["PATH=/bin".to_owned()];
    Ok(Image::new(SANDBOX_IMAGE, vec![layer], Settings { cmd, env, ..Settings::default() }))
}
