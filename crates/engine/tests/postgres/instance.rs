//! Instances for the scenarios: each on a volume of its own, with a certificate of one authority.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::Duration;

use keelson_engine::postgres::{Credentials, Postgres, Resources, Settings, Status, Tls, slot_name};
use keelson_engine::{Engine, Layout, Role, Secret, Upstream};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use testbed::{Look, until};

use testbed::inside::version;

/// Generous: the machine may be busy with other things.
pub const LONG: Duration = Duration::from_secs(60);

/// A password that must be found nowhere.
pub const PASSWORD: &str = "replicas-only-5e1f";

static TLS: LazyLock<Tls> = LazyLock::new(|| {
    let folder = Path::new("/mnt/tls");
    fs::create_dir_all(folder).unwrap();
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::default();
    // Of one name with what it signs, it would be taken for that.
    ca.distinguished_name.push(DnType::CommonName, "the authority");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let put = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    Tls {
        ca: put("ca.crt", ca_certificate.pem()),
        certificate: put("tls.crt", leaf.pem()),
        key: put("tls.key", key.serialize_pem()),
    }
});

/// One instance.
pub struct Instance {
    pub postgres: Postgres,
    pub layout: Layout,
    pub settings: Settings,
}

/// Where an instance of that name is.
pub fn layout(name: &str) -> Layout {
    let layout = Layout {
        volume: Path::new("/mnt").join(name),
        sockets: Path::new("/run").join(name),
        ..Layout::default()
    };
    fs::create_dir_all(&layout.volume).unwrap();
    fs::create_dir_all(&layout.sockets).unwrap();
    layout
}

pub fn settings(name: &str, port: u16) -> Settings {
    Settings {
        name: name.into(),
        port,
        listen: "127.0.0.1".into(),
        resources: Resources { memory: 256 << 20, cpu_millis: 1000, volume: 2 << 30 },
        parameters: BTreeMap::new(),
        tls: Some(TLS.clone()),
        plain: false,
        replication: Credentials { role: "keelson_replication".into(), password: Secret::new(PASSWORD) },
        archive: None,
    }
}

impl Instance {
    /// An instance without data.
    pub async fn empty(name: &str, port: u16) -> Instance {
        let (layout, settings) = (layout(name), settings(name, port));
        let postgres = Postgres::open(layout.clone(), settings.clone()).await.unwrap();
        assert_eq!(postgres.major(), version());
        Instance { postgres, layout, settings }
    }

    /// A running primary with the role for replicas.
    pub async fn primary(name: &str, port: u16) -> Instance {
        let instance = Instance::empty(name, port).await;
        instance.postgres.initialise().await.unwrap();
        instance.start(&Role::Primary).await;
        instance.postgres.ensure_replication().await.unwrap();
        instance
    }

    /// A running replica of another.
    pub async fn replica(name: &str, port: u16, of: &Instance) -> Instance {
        let instance = Instance::empty(name, port).await;
        let upstream = of.upstream_of(name);
        of.postgres.ensure_slots(&[slot_name(name)].into()).await.unwrap();
        instance.postgres.clone_from(&upstream, &|_| ()).await.unwrap();
        instance.start(&Role::Replica(Some(upstream))).await;
        instance.streams_from(of).await;
        instance
    }

    pub async fn start(&self, role: &Role) {
        self.postgres.start(role).await.unwrap();
        self.postgres.ready(LONG).await.unwrap();
    }

    /// This one, as another sees it.
    pub fn upstream_of(&self, replica: &str) -> Upstream {
        Upstream {
            host: "localhost".into(),
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port: self.settings.port,
            slot: Some(slot_name(replica)),
        }
    }

    pub async fn status(&self) -> Status {
        self.postgres.status(LONG).await.unwrap()
    }

    /// Waits until this one streams from the other and has replayed what that has now.
    pub async fn streams_from(&self, primary: &Instance) {
        let wanted = primary.status().await.position();
        until("the replica to stream", LONG, || async {
            match self.postgres.status(LONG).await {
                Ok(status) => {
                    let from = status.receiver.as_ref().filter(|receiver| receiver.status == "streaming");
                    let port = from.and_then(|receiver| receiver.port);
                    if port == Some(primary.settings.port.into()) && status.replayed >= Some(wanted) {
                        Look::There(())
                    } else {
                        Look::NotYet(format!("{status:?}, wanted {wanted}"))
                    }
                }
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap();
    }

    /// What `psql` says over the local socket, as the superuser.
    pub fn sql(&self, statement: &str) -> String {
        let output = self.try_sql(statement);
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn try_sql(&self, statement: &str) -> Output {
        let connect =
            format!("host={} port={} user=postgres", self.layout.sockets.display(), self.settings.port);
        psql(&connect, "", statement)
    }

    /// What a client over the network gets.
    pub fn client(
        &self,
        user: &str,
        database: &str,
        password: &str,
        sslmode: &str,
        statement: &str,
    ) -> Output {
        let ca = TLS.ca.display();
        let port = self.settings.port;
        let connect = format!(
            "host=localhost hostaddr=127.0.0.1 port={port} user={user} dbname={database} sslmode={sslmode} sslrootcert={ca}"
        );
        psql(&connect, password, statement)
    }

    /// The number of the postmaster.
    pub fn pid(&self) -> nix::unistd::Pid {
        match *self.postgres.process().borrow() {
            keelson_engine::Process::Running(pid) => nix::unistd::Pid::from_raw(pid.try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

fn psql(connect: &str, password: &str, statement: &str) -> Output {
    let program = PathBuf::from(format!("/usr/lib/postgresql/{}/bin/psql", version()));
    let mut command = Command::new("/usr/bin/timeout");
    command.arg("60").arg(program).args(["-X", "-At", "-d", connect, "-c", statement]);
    command.env("PGPASSWORD", password).env("HOME", "/tmp").output().unwrap()
}

/// All processes of this name, as `(number, state)`.
pub fn processes(name: &str) -> Vec<(i32, char)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (found, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        (found == name).then_some((pid, rest.chars().next()?))
    });
    found.collect()
}

/// Waits until none of that name is left that could still do anything.
pub async fn nobody_left(name: &str) {
    until("them to be gone", LONG, || async {
        match processes(name) {
            left if left.iter().all(|(_, state)| *state == 'Z') => Look::There(()),
            left => Look::NotYet(format!("{left:?}")),
        }
    })
    .await
    .unwrap();
}

/// The files below a folder that have this text in them.
pub fn found_in(folder: &Path, text: &str) -> Vec<PathBuf> {
    let output = Command::new("/usr/bin/grep").args(["-rlaF", text]).arg(folder).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
}
