//! Building the parts that are written in Go, from modules pinned under `go/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{During, Result};
use crate::layout::{Cache, sha256};
use crate::progress::Progress;
use crate::shell::{run, run_command};

/// One Go module and the programs that come out of it.
struct Module<'a> {
    /// What it is called in the cache.
    name: &'a str,
    /// Its folder, seen from `go/`.
    folder: &'a str,
    /// What the person reads while it is built.
    title: &'a str,
    /// Package to build, and the program's name.
    programs: &'a [(&'a str, &'a str)],
    tags: &'a str,
    /// What the linker tells variables of packages: versions, mostly.
    variables: &'a [(&'a str, &'a str)],
}

const KUBERNETES_VERSION: &[(&str, &str)] = &[
    ("k8s.io/component-base/version.gitVersion", "v1.36.3"),
    ("k8s.io/component-base/version.gitMajor", "1"),
    ("k8s.io/component-base/version.gitMinor", "36"),
];

/// Its own, and that of the Kubernetes that it takes for granted where it has no cluster to ask.
const HELM_VERSION: &[(&str, &str)] = &[
    ("helm.sh/helm/v3/internal/version.version", "v3.22.0"),
    ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1"),
    ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", "36"),
    ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", "1"),
    ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", "36"),
];

const MODULES: [Module<'static>; 5] = [
    Module {
        name: "kubernetes",
        folder: "kubernetes",
        title: "building Kubernetes and etcd",
        programs: &[(".", "kubernetes"), ("k8s.io/kubernetes/cmd/kubectl", "kubectl")],
        tags: "",
        variables: KUBERNETES_VERSION,
    },
    Module {
        name: "containerd",
        folder: "containerd",
        title: "building containerd",
        programs: &[
            ("github.com/containerd/containerd/v2/cmd/containerd", "containerd"),
            ("github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", "containerd-shim-runc-v2"),
            ("github.com/containerd/containerd/v2/cmd/ctr", "ctr"),
        ],
        tags: "no_btrfs,no_zfs,no_devmapper",
        variables: &[],
    },
    Module {
        name: "coredns",
        folder: "coredns",
        title: "building CoreDNS",
        programs: &[(".", "coredns")],
        tags: "",
        variables: &[],
    },
    Module {
        name: "versitygw",
        folder: "versitygw",
        title: "building the S3 server",
        programs: &[("github.com/versity/versitygw/cmd/versitygw", "versitygw")],
        tags: "",
        variables: &[],
    },
    Module {
        name: "helm",
        folder: "helm",
        title: "building Helm",
        programs: &[("helm.sh/helm/v3/cmd/helm", "helm")],
        tags: "",
        variables: HELM_VERSION,
    },
];

/// Builds Helm, if it is not in the cache yet, and says where it is.
pub fn helm() -> Result<PathBuf> {
    let cache = Cache::open()?;
    let progress = Progress::new(&cache);
    Ok(Programs::build_modules(&cache, &progress, &MODULES[4..])?.find("helm"))
}

/// Builds kubectl, if it is not in the cache yet, and says where it is.
pub fn kubectl() -> Result<PathBuf> {
    let cache = Cache::open()?;
    let progress = Progress::new(&cache);
    Ok(Programs::build_kubernetes(&cache, &progress)?.find("kubectl"))
}

/// Builds what validates a bundle for the Operator Lifecycle Manager, if it is not in the cache yet, and says where it is.
pub fn bundle_validator() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/olm");
    build_go("building the validator of OLM bundles", &folder, ".", "validate-bundle")
}

/// Builds the S3 server (`versitygw`), if it is not in the cache yet, and says where it is.
pub fn s3_server() -> Result<PathBuf> {
    let cache = Cache::open()?;
    let progress = Progress::new(&cache);
    Ok(Programs::build_modules(&cache, &progress, &MODULES[3..4])?.find("versitygw"))
}

/// Builds one program from a package of the Go module in `folder`, if it is not in the cache yet, and says
/// where it is. `title` is what the person reads meanwhile.
pub fn build_go(title: &str, folder: &Path, package: &str, program: &str) -> Result<PathBuf> {
    let absolute = std::path::absolute(folder).during("resolving", folder)?;
    let module = Module {
        name: program,
        folder: &absolute.to_string_lossy(),
        title,
        programs: &[(package, program)],
        tags: "",
        variables: &[],
    };
    let cache = Cache::open()?;
    let progress = Progress::new(&cache);
    Ok(Programs::build_modules(&cache, &progress, &[module])?.find(program))
}

/// Folders with the programs, by module.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    folders: Vec<PathBuf>,
}

impl Programs {
    /// Builds what is not in the cache yet.
    pub(crate) fn build(cache: &Cache, progress: &Progress) -> Result<Self> {
        Self::build_modules(cache, progress, &MODULES)
    }

    /// Only what a control plane without nodes needs.
    pub(crate) fn build_kubernetes(cache: &Cache, progress: &Progress) -> Result<Self> {
        Self::build_modules(cache, progress, &MODULES[..1])
    }

    fn build_modules(cache: &Cache, progress: &Progress, modules: &[Module<'_>]) -> Result<Self> {
        let compiler = run(&["go", "version"])?;
        let folders = modules
            .iter()
            .map(|module| {
                let entry = format!("{}-{}", module.name, module.key(&compiler)?);
                match cache.finished(&entry) {
                    Some(folder) => Ok(folder),
                    None => progress
                        .step(module.title, || cache.entry(&entry, |folder| module.build_into(folder))),
                }
            })
            .collect::<Result<_>>()?;
        Ok(Programs { folders })
    }

    /// A value for `PATH` that finds these programs first.
    pub(crate) fn path(&self) -> String {
        let folders = self.folders.iter().map(|folder| folder.display().to_string());
        folders.chain(["/usr/sbin:/usr/bin:/sbin:/bin".to_owned()]).collect::<Vec<_>>().join(":")
    }

    /// Where one program is.
    pub(crate) fn find(&self, name: &str) -> PathBuf {
        let places = self.folders.iter().map(|folder| folder.join(name));
        places.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name))
    }
}

impl Module<'_> {
    fn source(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(self.folder)
    }

    /// Changes with the source, the pinned versions, the flags and the compiler.
    fn key(&self, compiler: &str) -> Result<String> {
        let mut text = format!("{compiler}{:?}{}{}", self.programs, self.tags, self.linker_flags());
        let source = self.source();
        let mut files = vec![source.join("go.mod"), source.join("go.sum")];
        files.extend(go_files(&source)?);
        for file in files {
            text.push_str(&fs::read_to_string(&file).during("reading", &file)?);
        }
        Ok(sha256(text.as_bytes())[..16].to_owned())
    }

    fn linker_flags(&self) -> String {
        let told = self.variables.iter().map(|(variable, value)| format!(" -X {variable}={value}"));
        format!("-s -w{}", told.collect::<String>())
    }

    fn build_into(&self, folder: &Path) -> Result<()> {
        for (package, program) in self.programs {
            let mut command = Command::new("go");
            command.args(["build", "-trimpath", "-mod=readonly", "-tags", self.tags]);
            command.args(["-ldflags", &self.linker_flags(), "-o"]).arg(folder.join(program)).arg(package);
            // Memory is cheaper than time here: collect garbage less often than Go would.
            command.current_dir(self.source()).envs([("CGO_ENABLED", "0"), ("GOGC", "400")]);
            run_command(command)?;
        }
        Ok(())
    }
}

/// All Go source below a folder, in an order that is always the same.
fn go_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let mut paths: Vec<PathBuf> = entries.during("reading", folder)?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(go_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "go") {
            files.push(path);
        }
    }
    Ok(files)
}
