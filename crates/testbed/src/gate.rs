//! The one way in: a listener on the machine's loopback whose connections go on inside the hub's
//! network namespace. There is no link between the two networks, only this process.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::error::{During, Result};
use crate::layout::Layout;
use crate::machine::{HUB, Machine, append_to, system_cgroup};
use crate::network::{API, API_PORT};
use crate::shell::let_go;

/// The first port that is tried.
const FIRST_PORT: u16 = 16443;

/// Opens the gate; returns the port on which the API server can be reached from here.
pub(crate) fn open(layout: &Layout, hub: &Machine) -> Result<u16> {
    let free =
        (FIRST_PORT..FIRST_PORT + 100).find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let listener = match free {
        Some(listener) => listener,
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).during("listening on", "127.0.0.1")?,
    };
    let port = listener.local_addr().during("listening on", "127.0.0.1")?.port();
    let log_file = layout.logs(HUB).join("gate.log");
    let log = append_to(&log_file)?;
    // The listening socket stays what it is; every socket that the process makes itself belongs to
    // the namespace that it has entered by then.
    let process = Command::new("sh")
        .arg("-c")
        .arg("echo $$ > \"$1\" && shift && exec \"$@\"")
        .args(["sh", &system_cgroup(layout, HUB).procs_file().to_string_lossy()])
        // In a session of its own, as machines are.
        .args(["setsid", "nsenter", "--target", &hub.pid().to_string(), "--net", "--"])
        .arg(layout.program())
        .arg("gate")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(log)
        .current_dir("/")
        .spawn()
        .during("starting", layout.program())?;
    let_go(process);
    Ok(port)
}

/// Passes connections on, for ever. The listener is standard input.
pub(crate) async fn serve() -> Result<()> {
    let inherited = std::io::stdin().as_fd().try_clone_to_owned().during("taking over", "the listener")?;
    let listener = TcpListener::from(inherited);
    listener.set_nonblocking(true).during("preparing", "the listener")?;
    let listener = tokio::net::TcpListener::from_std(listener).during("preparing", "the listener")?;
    loop {
        let (mut outside, _) = listener.accept().await.during("accepting on", "the listener")?;
        tokio::spawn(async move {
            match TcpStream::connect((API, API_PORT)).await {
                // A connection that breaks is its two ends' affair.
                Ok(mut inside) => drop(copy_bidirectional(&mut outside, &mut inside).await),
                Err(error) => eprintln!("the API server can't be reached: {error}"),
            }
        });
    }
}
