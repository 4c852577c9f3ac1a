//! Repositories for the scenarios.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keelson_backup::{Format, Key, Location, Repository, S3Credentials, Secret};
use testbed::{Look, until};

pub const BUCKET: &str = "backups";
const PORT: u16 = 7070;

/// A repository in a folder.
pub fn folder(name: &str) -> Repository {
    Repository::open(&Location::Folder { path: Path::new("/mnt").join(name) }, Format::default()).unwrap()
}

/// A real S3 server on loopback, over a folder.
pub struct S3 {
    process: Option<Child>,
}

impl S3 {
    pub async fn start() -> S3 {
        std::fs::create_dir_all(Path::new("/mnt/objects").join(BUCKET)).unwrap();
        let mut s3 = S3 { process: None };
        s3.start_again().await;
        s3
    }

    pub async fn start_again(&mut self) {
        let mut command = Command::new("/mnt/versitygw");
        command.args([
            "--port",
            &format!("127.0.0.1:{PORT}"),
            "--region",
            "us-east-1",
            "posix",
            "/mnt/objects",
        ]);
        command.env("ROOT_ACCESS_KEY", "key").env("ROOT_SECRET_KEY", "secret");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        until("the S3 server to listen", Duration::from_secs(60), || async {
            match tokio::net::TcpStream::connect(("127.0.0.1", PORT)).await {
                Ok(_) => Look::There(()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap();
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn location(prefix: &str, secret: &str) -> Location {
        Location::S3 {
            bucket: BUCKET.into(),
            prefix: prefix.into(),
            region: None,
            endpoint: Some(format!("http://127.0.0.1:{PORT}")),
            credentials: S3Credentials::Keys { id: "key".into(), secret: Secret::new(secret), token: None },
            authorities: None,
        }
    }

    pub fn repository(prefix: &str) -> Repository {
        Repository::open(&S3::location(prefix, "secret"), Format::default()).unwrap()
    }

    pub fn sealed(prefix: &str) -> Repository {
        let key = Key::from_hex(&Secret::new("0123456789abcdef".repeat(4))).unwrap();
        Repository::open(&S3::location(prefix, "secret"), Format { key: Some(key), level: 3 }).unwrap()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.stop();
    }
}
