//! The fence in the commit, where commits wait for no other instance: this program is itself a synchronous
//! standby of its own PostgreSQL, over the local socket, and acknowledges only while it may.
//!
//! A leader that was paused and wakes after another has taken its place wakes with all its processes at once:
//! no timer of its own could end PostgreSQL before a backend has told a client that its commit is done. But
//! a backend that waits for an acknowledgement from here gets none, since the time is looked at right
//! before each is sent.
//!
//! It is a small part of the protocol for physical replication: the log is read and thrown away. What it says
//! is on disk is what PostgreSQL itself has sent, and that is on its disk already.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::Postgres;
use super::hba::SUPERUSER;

/// The name under which it acknowledges.
pub const FENCE: &str = "keelson_fence";

/// How soon it comes back when it is cut off.
const AGAIN: Duration = Duration::from_millis(50);
/// The largest message that is read: PostgreSQL sends the log in pieces of at most 128 KiB.
const LARGEST: usize = 1 << 20;
/// How often it says where it is without being asked.
const INTERVAL: Duration = Duration::from_secs(1);

impl Postgres {
    /// Acknowledges commits for as long as `may` says so at that very moment. Never ends by itself.
    pub fn fence(&self, may: impl Fn() -> bool + Send + Sync + 'static) -> tokio::task::JoinHandle<()> {
        let local = self.local();
        let socket = local.sockets.join(format!(".s.PGSQL.{}", local.port));
        tokio::spawn(async move {
            loop {
                if let Err(error) = stand(&socket, &may).await {
                    tracing::debug!(%error, "the fence is down, and put up again");
                }
                tokio::time::sleep(AGAIN).await;
            }
        })
    }
}

async fn stand(socket: &PathBuf, may: &(impl Fn() -> bool + Sync)) -> io::Result<()> {
    let mut stream = BufReader::with_capacity(256 << 10, UnixStream::connect(socket).await?);
    stream.write_all(&startup()).await?;
    until_ready(&mut stream).await?;
    stream.write_all(&query("IDENTIFY_SYSTEM")).await?;
    let row = until_ready(&mut stream).await?.ok_or_else(|| strange("no answer to IDENTIFY_SYSTEM"))?;
    let [_, timeline, end, ..] = row.as_slice() else { return Err(strange("a short answer")) };
    stream.write_all(&query(&format!("START_REPLICATION PHYSICAL {end} TIMELINE {timeline}"))).await?;
    let mut place = 0;
    loop {
        let (kind, body) = match tokio::time::timeout(INTERVAL, message(&mut stream)).await {
            Ok(message) => message?,
            // A message that came in part would be lost: but PostgreSQL writes them whole.
            Err(_) if stream.buffer().is_empty() => (b'd', vec![b'k']),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        match (kind, body.first()) {
            (b'd', Some(b'w')) => place = place.max(end_of(&body)?),
            (b'd', Some(b'k')) | (b'W', _) => {}
            (b'E', _) => return Err(strange(&text(&body))),
            (b'c' | b'C', _) => return Err(strange("the log has ended")),
            _ => {}
        }
        // What has come already is acknowledged with one word.
        let more = stream.buffer().len() >= 5;
        if !more && place > 0 && may() {
            stream.write_all(&status(place)).await?;
        }
    }
}

fn strange(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

fn startup() -> Vec<u8> {
    let words = ["user", SUPERUSER, "replication", "true", "application_name", FENCE];
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for word in words {
        body.extend(word.as_bytes());
        body.push(0);
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap_or_default();
    [length.to_be_bytes().to_vec(), body].concat()
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or_default();
    [&[kind], length.to_be_bytes().as_slice(), body].concat()
}

fn query(text: &str) -> Vec<u8> {
    framed(b'Q', &[text.as_bytes(), &[0]].concat())
}

/// All up to here is written, on disk and, as far as that goes here, replayed.
fn status(place: u64) -> Vec<u8> {
    let mut body = vec![b'r'];
    for _ in 0..3 {
        body.extend(place.to_be_bytes());
    }
    body.extend(0u64.to_be_bytes());
    body.push(0);
    framed(b'd', &body)
}

async fn message(stream: &mut BufReader<UnixStream>) -> io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32().await?.saturating_sub(4) as usize;
    if length > LARGEST {
        return Err(strange("a message that is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((kind, body))
}

/// Reads until the server waits for the next command, and returns the last row that came.
async fn until_ready(stream: &mut BufReader<UnixStream>) -> io::Result<Option<Vec<String>>> {
    let mut row = None;
    loop {
        match message(stream).await? {
            (b'Z', _) => return Ok(row),
            (b'E', body) => return Err(strange(&text(&body))),
            // Anything but "all is well" would be a password that is asked for.
            (b'R', body) if body != [0; 4] => return Err(strange("the local socket asks for a password")),
            (b'D', body) => row = Some(columns(&body)),
            _ => {}
        }
    }
}

fn columns(body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or_default();
        let (value, after) = after.split_at(length.min(after.len()));
        found.push(String::from_utf8_lossy(value).into_owned());
        rest = after;
    }
    found
}

/// Where a piece of the log ends: it says where it begins.
fn end_of(body: &[u8]) -> io::Result<u64> {
    const HEADER: usize = 25;
    let begin = body.get(1..9).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let begin = begin.filter(|_| body.len() >= HEADER).ok_or_else(|| strange("a short piece of the log"))?;
    Ok(begin + (body.len() - HEADER) as u64)
}

/// The fields of an error, for the log.
fn text(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0).filter(|field| field.first() == Some(&b'M'));
    fields.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_the_log_says_where_it_ends() {
        let mut piece = vec![b'w'];
        piece.extend(0x1000u64.to_be_bytes());
        piece.extend([0; 16]);
        piece.extend([7; 50]);
        assert_eq!(end_of(&piece).unwrap(), 0x1000 + 50);
        assert!(end_of(&piece[..20]).is_err());
    }

    #[test]
    fn rows_and_errors_are_read() {
        let mut row = vec![0, 2, 0, 0, 0, 3];
        row.extend(b"778");
        row.extend([0, 0, 0, 1]);
        row.extend(b"4");
        assert_eq!(columns(&row), ["778", "4"]);
        assert_eq!(columns(&[]), Vec::<String>::new());
        assert_eq!(text(b"SFATAL\0Mno room\0\0"), "no room");
    }

    #[test]
    fn an_acknowledgement_names_one_place_three_times() {
        let said = status(0x0102_0304_0506_0708);
        assert_eq!((said[0], said.len()), (b'd', 5 + 1 + 3 * 8 + 8 + 1));
        assert_eq!(&said[6..14], &said[14..22]);
    }
}
