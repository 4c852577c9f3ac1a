//! Objects of any size to the store and back, packed and sealed on the way, in a bounded amount of memory.
//!
//! What is packed runs on a thread of its own and is handed over in chunks; the thread waits while the store is
//! slow. A chunk is what is sent in one request and, if need be, sent again.

use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use object_store::{ObjectStoreExt, PutMode, PutPayload};
use tokio::sync::mpsc;

use crate::error::{Error, Result, of_store};
use crate::repository::{Format, Repository, Writer};
use crate::seal::{Opener, Sealer};

/// What is sent in one request of several. Stores take no less than 5 MiB, and no more than 10,000 of them.
pub(crate) const CHUNK: usize = 6 << 20;
/// How many of them are on the way at once, per object.
const ON_THE_WAY: usize = 2;

/// What an object became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// In bytes, as the store has it.
    pub size: u64,
    /// SHA-256 of what the store has, in hexadecimal.
    pub sha256: String,
}

enum Chunk {
    More(Bytes),
    /// Without it, the object is not whole and must not be there.
    Last(Bytes),
}

/// Packs what `produce` writes and stores it under a name. `whole` is up to which size it goes in one request.
pub(crate) async fn upload<T: Send + 'static>(
    writer: &Writer,
    relative: &str,
    mode: PutMode,
    whole: usize,
    produce: impl FnOnce(&mut dyn Write) -> Result<T> + Send + 'static,
) -> Result<(T, Stored)> {
    writer.check().await?;
    let repository = writer.repository();
    let format = repository.format.clone();
    let (sender, mut chunks) = mpsc::channel(1);
    let name = relative.to_owned();
    let packing = tokio::task::spawn_blocking(move || pack(&name, &format, whole, sender, produce));
    let sent = send(repository, relative, mode, &mut chunks).await;
    drop(chunks);
    let packed = packing.await.map_err(|error| Error::lost("packing", error))?;
    // If the store refused, packing broke off for that very reason.
    sent?;
    let (value, stored) = packed?;
    confirm(repository, relative, &stored).await?;
    Ok((value, stored))
}

/// The store has said that it has the object. It costs one small request to see that it has all of it.
async fn confirm(repository: &Repository, relative: &str, stored: &Stored) -> Result<()> {
    match repository.head(relative).await? {
        Some(object) if object.size == stored.size => Ok(()),
        Some(object) => {
            let reason = format!("{} bytes were stored, and {} are there", stored.size, object.size);
            Err(repository.corrupt(relative, reason))
        }
        None => Err(repository.corrupt(relative, "the store took it and does not have it")),
    }
}

fn pack<T>(
    relative: &str,
    format: &Format,
    whole: usize,
    sender: mpsc::Sender<Chunk>,
    produce: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<(T, Stored)> {
    let failed = |error: io::Error| Error::Unreachable {
        doing: "packing",
        object: relative.to_owned(),
        reason: error.to_string(),
    };
    let outgoing = Outgoing { buffer: Vec::new(), whole, sender, digest: Context::new(&SHA256), size: 0 };
    let sealer = Sealer::new(format.key.as_ref(), outgoing).map_err(failed)?;
    let mut encoder = zstd::Encoder::new(sealer, format.level).map_err(failed)?;
    // So that a changed byte is found by whoever reads it, with whatever program.
    encoder.include_checksum(true).map_err(failed)?;
    let value = produce(&mut encoder)?;
    let sealer = encoder.finish().map_err(failed)?;
    let stored = sealer.finish().and_then(Outgoing::finish).map_err(failed)?;
    Ok((value, stored))
}

/// Gathers what is written into chunks.
struct Outgoing {
    buffer: Vec<u8>,
    whole: usize,
    sender: mpsc::Sender<Chunk>,
    digest: Context,
    size: u64,
}

impl Outgoing {
    fn send(&mut self, last: bool) -> io::Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let chunk = if last { Chunk::Last(bytes) } else { Chunk::More(bytes) };
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes it any more");
        // After the first, it is more than one request anyway.
        self.whole = CHUNK;
        self.sender.blocking_send(chunk).map_err(gone)
    }

    fn finish(mut self) -> io::Result<Stored> {
        self.send(true)?;
        Ok(Stored { size: self.size, sha256: hex(self.digest.finish().as_ref()) })
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() == self.whole {
            self.send(false)?;
        }
        let take = bytes.len().min(self.whole - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..take]);
        self.digest.update(&bytes[..take]);
        self.size += take as u64;
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn send(
    repository: &Repository,
    relative: &str,
    mode: PutMode,
    chunks: &mut mpsc::Receiver<Chunk>,
) -> Result<()> {
    let refused = |error| of_store("writing", relative, error);
    let path = repository.path(relative);
    let first = match chunks.recv().await {
        // Packing failed, and says itself why.
        None => return Ok(()),
        Some(Chunk::Last(bytes)) => {
            let put = repository.store().put_opts(&path, PutPayload::from_bytes(bytes), mode.into()).await;
            return put.map(drop).map_err(refused);
        }
        Some(Chunk::More(bytes)) => bytes,
    };
    // Nothing that is put together of several requests can be made only if nothing is there.
    if matches!(mode, PutMode::Create) && repository.head(relative).await?.is_some() {
        return Err(Error::Conflict { object: relative.to_owned() });
    }
    let mut upload = repository.store().put_multipart(&path).await.map_err(refused)?;
    let sent = send_parts(upload.as_mut(), first, chunks).await;
    match sent {
        Ok(true) => upload.complete().await.map(drop).map_err(refused),
        Ok(false) => {
            // What is left of it costs money and is seen by nobody.
            let _ = upload.abort().await;
            Ok(())
        }
        Err(error) => {
            let _ = upload.abort().await;
            Err(refused(error))
        }
    }
}

/// Whether all of it was sent.
async fn send_parts(
    upload: &mut dyn object_store::MultipartUpload,
    first: Bytes,
    chunks: &mut mpsc::Receiver<Chunk>,
) -> object_store::Result<bool> {
    let mut on_the_way = FuturesUnordered::new();
    on_the_way.push(upload.put_part(PutPayload::from_bytes(first)));
    loop {
        while on_the_way.len() >= ON_THE_WAY {
            on_the_way.next().await.transpose()?;
        }
        let (bytes, last) = match chunks.recv().await {
            None => return Ok(false),
            Some(Chunk::More(bytes)) => (bytes, false),
            Some(Chunk::Last(bytes)) => (bytes, true),
        };
        if !bytes.is_empty() {
            on_the_way.push(upload.put_part(PutPayload::from_bytes(bytes)));
        }
        if last {
            while on_the_way.next().await.transpose()?.is_some() {}
            return Ok(true);
        }
    }
}

/// Fetches an object, opens and unpacks it, and gives it to `consume` to read. What that leaves unread is read
/// too: only at its end is it known to be whole. Errors of the reader mean that the object is corrupt.
pub(crate) async fn download<T: Send + 'static>(
    repository: &Repository,
    relative: &str,
    consume: impl FnOnce(&mut dyn Read) -> Result<T> + Send + 'static,
) -> Result<(T, Stored)> {
    let failed = |error| of_store("reading", relative, error);
    let got = repository.store().get(&repository.path(relative)).await.map_err(failed)?;
    let mut stream = got.into_stream();
    let (sender, chunks) = mpsc::channel::<Bytes>(8);
    let (format, name) = (repository.format.clone(), relative.to_owned());
    let location = repository.clone();
    let unpacking = tokio::task::spawn_blocking(move || {
        let incoming = Incoming { chunks, current: Bytes::new(), digest: Context::new(&SHA256), size: 0 };
        unpack(&location, &name, &format, incoming, consume)
    });
    let mut broken = None;
    while let Some(chunk) = stream.next().await {
        match chunk {
            // Nobody reads any more: what is wrong is said below.
            Ok(bytes) => {
                if sender.send(bytes).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                broken = Some(failed(error));
                break;
            }
        }
    }
    drop(sender);
    let unpacked = unpacking.await.map_err(|error| Error::lost("unpacking", error))?;
    // A connection that broke looks like an object that was cut off.
    match broken {
        Some(error) => Err(error),
        None => unpacked,
    }
}

fn unpack<T>(
    repository: &Repository,
    relative: &str,
    format: &Format,
    mut incoming: Incoming,
    consume: impl FnOnce(&mut dyn Read) -> Result<T>,
) -> Result<(T, Stored)> {
    let corrupt = |error: io::Error| repository.corrupt(relative, error);
    let opener = Opener::new(format.key.as_ref(), &mut incoming).map_err(corrupt)?;
    let mut reader: Box<dyn Read> = match relative.ends_with(".zst") {
        true => Box::new(zstd::Decoder::new(opener).map_err(corrupt)?),
        false => Box::new(opener),
    };
    let value = consume(&mut reader)?;
    io::copy(&mut reader, &mut io::sink()).map_err(corrupt)?;
    drop(reader);
    // Behind what was packed there is nothing.
    if incoming.read(&mut [0]).map_err(corrupt)? > 0 {
        return Err(repository.corrupt(relative, "something was added to it"));
    }
    Ok((value, Stored { size: incoming.size, sha256: hex(incoming.digest.finish().as_ref()) }))
}

/// What arrives, as something to read from.
struct Incoming {
    chunks: mpsc::Receiver<Bytes>,
    current: Bytes,
    digest: Context,
    size: u64,
}

impl Read for Incoming {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(bytes) => self.current = bytes,
                None => return Ok(0),
            }
        }
        let take = out.len().min(self.current.len());
        let taken = self.current.split_to(take);
        out[..take].copy_from_slice(&taken);
        self.digest.update(&taken);
        self.size += take as u64;
        Ok(take)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::repository::Claim;
    use crate::seal::Key;
    use crate::secret::Secret;
    use crate::wal::SegmentSize;

    async fn writer(key: Option<Key>) -> Writer {
        let repository = Repository::on(Arc::new(InMemory::new()), Format { key, ..Format::default() });
        let claim =
            Claim { system_identifier: 1, segment_size: SegmentSize::DEFAULT, owner: "shop/orders".into() };
        repository.claim(&claim).await.unwrap()
    }

    fn key() -> Option<Key> {
        Some(Key::from_hex(&Secret::new("5".repeat(64))).unwrap())
    }

    /// Bytes that don't compress.
    fn noise(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        aws_lc_rs::rand::fill(&mut bytes).unwrap();
        bytes
    }

    async fn store(writer: &Writer, bytes: Vec<u8>) -> Result<Stored> {
        let produce =
            move |to: &mut dyn Write| to.write_all(&bytes).map_err(|error| Error::lost("packing", error));
        Ok(upload(writer, "wal_005/x.zst", PutMode::Create, 1 << 20, produce).await?.1)
    }

    async fn fetch(writer: &Writer) -> Result<(Vec<u8>, Stored)> {
        let repository = writer.repository().clone();
        let consume = move |from: &mut dyn Read| {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).map_err(|error| repository.corrupt("wal_005/x.zst", error))?;
            Ok(bytes)
        };
        download(writer.repository(), "wal_005/x.zst", consume).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_stored_comes_back_in_one_request_or_in_many_sealed_or_not() {
        for key in [None, key()] {
            for length in [0, 1, 1 << 20, (1 << 20) + 1, 2 * CHUNK + 12345] {
                let writer = writer(key.clone()).await;
                let bytes = noise(length);
                let stored = store(&writer, bytes.clone()).await.unwrap();
                let (back, seen) = fetch(&writer).await.unwrap();
                assert!(back == bytes, "{length}");
                assert_eq!(seen, stored, "{length}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_there_is_not_overwritten() {
        for length in [10, 3 * CHUNK] {
            let writer = writer(None).await;
            let bytes = noise(length);
            store(&writer, bytes.clone()).await.unwrap();
            let error = store(&writer, noise(length)).await.unwrap_err();
            assert!(matches!(error, Error::Conflict { .. }), "{error}");
            assert!(fetch(&writer).await.unwrap().0 == bytes);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_could_not_be_read_to_its_end_is_not_stored() {
        for length in [10, 2 * CHUNK] {
            let writer = writer(None).await;
            let produce = move |to: &mut dyn Write| {
                let _ = to.write_all(&noise(length));
                Err::<(), _>(Error::Refused("the disk failed".into()))
            };
            let error =
                upload(&writer, "wal_005/x.zst", PutMode::Create, 1 << 20, produce).await.unwrap_err();
            assert_eq!(error.to_string(), "the disk failed");
            assert!(writer.repository().head("wal_005/x.zst").await.unwrap().is_none());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_flipped_byte_is_found_wherever_it_is() {
        for key in [None, key()] {
            let writer = writer(key).await;
            store(&writer, noise(5000)).await.unwrap();
            let path = writer.repository().path("wal_005/x.zst");
            let good = writer.repository().read("wal_005/x.zst").await.unwrap();
            for at in (0..good.len()).step_by(97).chain([good.len() - 1]) {
                let mut bad = good.to_vec();
                bad[at] ^= 0x10;
                writer.repository().store().put(&path, bad.into()).await.unwrap();
                let found = fetch(&writer).await;
                // Its length and digest are looked at where they are known; the rest is for those who read alone.
                assert!(
                    matches!(found, Err(Error::Corrupt { .. })),
                    "byte {at} of {}: {:?}",
                    good.len(),
                    found.map(|_| ())
                );
            }
            let mut longer = good.to_vec();
            longer.push(0);
            writer.repository().store().put(&path, longer.into()).await.unwrap();
            assert!(matches!(fetch(&writer).await, Err(Error::Corrupt { .. })));
        }
    }
}
