//! Container images without a registry or a builder: an OCI archive is a tar of tars and three
//! small JSON files, so the testbed writes it itself.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::{During, Result};
use crate::layout::{hex, sha256};

/// Where the container runtime looks for a name without a host: `postgres:17` is short for this.
const UNNAMED_HOST: &str = "docker.io/library";

/// An image about to be written.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    layers: Vec<PathBuf>,
    settings: Settings,
}

/// What a container started from the image has when its pod does not say otherwise.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Settings {
    /// `NAME=value`.
    pub env: Vec<String>,
    /// The program.
    pub entrypoint: Vec<String>,
    /// Its arguments, or the whole command where there is no entry point.
    pub cmd: Vec<String>,
    /// Number or name of the account.
    pub user: String,
    /// Where it starts.
    pub working_dir: String,
}

impl Image {
    /// An image of the given tar files, each one layer above the one before.
    pub fn new(name: &str, layers: Vec<PathBuf>, settings: Settings) -> Self {
        Image { name: full_name(name), layers, settings }
    }

    /// The name under which a pod finds it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An image made from scratch around static programs: each `(path in the image, file here)`.
    /// The first is the entry point; it runs as an account without a name.
    pub fn of_programs(name: &str, programs: &[(&str, &Path)], scratch: &Path) -> Result<Self> {
        fs::create_dir_all(scratch).during("creating", scratch)?;
        let layer = scratch.join("layer.tar");
        let mut tar = tar::Builder::new(File::create(&layer).during("creating", &layer)?);
        for (inside, file) in programs {
            let mut header = tar::Header::new_gnu();
            header.set_size(fs::metadata(file).during("reading", file)?.len());
            header.set_mode(0o755);
            let content = File::open(file).during("opening", file)?;
            tar.append_data(&mut header, inside.trim_start_matches('/'), content).during("packing", file)?;
        }
        tar.into_inner().and_then(|mut file| file.flush()).during("writing", &layer)?;
        let entrypoint = programs.first().map(|(inside, _)| (*inside).to_owned()).into_iter().collect();
        let settings = Settings { entrypoint, user: "65532:65532".into(), ..Settings::default() };
        Ok(Image::new(name, vec![layer], settings))
    }

    /// Writes the image as an OCI archive.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let file = File::create(archive).during("creating", archive)?;
        let mut tar = tar::Builder::new(file);
        let layers =
            self.layers.iter().map(|layer| append_layer(&mut tar, layer)).collect::<Result<Vec<_>>>()?;
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": self.settings,
            "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|l| &l["digest"]).collect::<Vec<_>>() },
        });
        let written = || -> io::Result<()> {
            let config = append_json(&mut tar, "application/vnd.oci.image.config.v1+json", &config)?;
            let manifest = json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config,
                "layers": layers,
            });
            let kind = "application/vnd.oci.image.manifest.v1+json";
            let mut manifest = append_json(&mut tar, kind, &manifest)?;
            manifest["annotations"] = json!({ "io.containerd.image.name": self.name });
            let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
            append_bytes(&mut tar, "index.json", &serde_json::to_vec(&index)?)?;
            append_bytes(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
            tar.into_inner()?.flush()
        };
        written().during("writing", archive)
    }
}

/// `postgres:17` as the container runtime spells it out.
pub(crate) fn full_name(name: &str) -> String {
    let tagged = if name.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        name.to_owned()
    } else {
        format!("{name}:latest")
    };
    match tagged.split_once('/') {
        Some((host, _)) if host.contains('.') || host.contains(':') || host == "localhost" => tagged,
        Some(_) => format!("{}/{tagged}", UNNAMED_HOST.split('/').next().unwrap_or_default()),
        None => format!("{UNNAMED_HOST}/{tagged}"),
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn append_layer(tar: &mut tar::Builder<File>, layer: &Path) -> Result<Value> {
    let mut hash = Sha256::new();
    let mut file = File::open(layer).during("opening", layer)?;
    let mut buffer = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        match file.read(&mut buffer).during("reading", layer)? {
            0 => break,
            count => {
                hash.update(&buffer[..count]);
                size += count as u64;
            }
        }
    }
    let digest = hex(&hash.finalize());
    let mut header = file_header(size);
    let content = File::open(layer).during("opening", layer)?;
    tar.append_data(&mut header, format!("blobs/sha256/{digest}"), content).during("packing", layer)?;
    Ok(descriptor("application/vnd.oci.image.layer.v1.tar", &digest, size))
}

fn append_json(tar: &mut tar::Builder<File>, kind: &str, value: &Value) -> io::Result<Value> {
    let bytes = serde_json::to_vec(value)?;
    let digest = sha256(&bytes);
    append_bytes(tar, &format!("blobs/sha256/{digest}"), &bytes)?;
    Ok(descriptor(kind, &digest, bytes.len() as u64))
}

fn append_bytes(tar: &mut tar::Builder<File>, path: &str, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut file_header(bytes.len() as u64), path, bytes)
}

fn file_header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header
}

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
}

#[cfg(test)]
mod tests {
    use super::full_name;

    #[test]
    fn names_are_spelled_out_as_the_runtime_does() {
        assert_eq!(full_name("postgres:17"), "docker.io/library/postgres:17");
        assert_eq!(full_name("busybox"), "docker.io/library/busybox:latest");
        assert_eq!(full_name("keelson/operator:dev"), "docker.io/keelson/operator:dev");
        assert_eq!(full_name("localhost:5000/a/b:1"), "localhost:5000/a/b:1");
    }
}
