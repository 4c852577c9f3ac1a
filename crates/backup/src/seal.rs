//! Encryption on this side of the wire, as WAL-G does it with libsodium: `crypto_secretstream` in messages of
//! 8 KiB, the last of them marked, after a header of 24 bytes. A message that was changed, left out, moved or
//! cut off is found.

use std::io::{self, Read, Write};

use crypto_secretstream::{Header, Key as StreamKey, PullStream, PushStream, Tag};
use rand_core::{CryptoRng, RngCore};

use crate::error::{Error, Result};
use crate::secret::Secret;

const MESSAGE: usize = 8192;
const OVERHEAD: usize = 17;

/// The key of a repository.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Reads 32 bytes in 64 hexadecimal digits: what WAL-G takes as `WALG_LIBSODIUM_KEY` with
    /// `WALG_LIBSODIUM_KEY_TRANSFORM=hex`.
    pub fn from_hex(text: &Secret) -> Result<Key> {
        let bad = || Error::Settings {
            field: "encryption key",
            reason:
                "it must be 64 hexadecimal digits (32 random bytes), as `openssl rand -hex 32` makes them"
                    .into(),
        };
        let text = text.reveal().trim();
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        let mut key = [0; 32];
        for (at, byte) in key.iter_mut().enumerate() {
            let digits = &text[2 * at..2 * at + 2];
            *byte = crate::lsn::hex(digits).and_then(|value| value.try_into().ok()).ok_or_else(bad)?;
        }
        Ok(Key(key))
    }
}

/// Random bytes that were drawn before, since drawing them can fail.
struct Drawn([u8; Header::BYTES]);

impl RngCore for Drawn {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        for (to, from) in out.iter_mut().zip(self.0.iter().cycle()) {
            *to = *from;
        }
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(out);
        Ok(())
    }
}

impl CryptoRng for Drawn {}

/// Writes sealed, or as it is where there is no key.
pub(crate) enum Sealer<W> {
    Plain(W),
    Sealed { stream: PushStream, message: Vec<u8>, inner: W },
}

impl<W: Write> Sealer<W> {
    pub(crate) fn new(key: Option<&Key>, mut inner: W) -> io::Result<Self> {
        let Some(Key(key)) = key else { return Ok(Sealer::Plain(inner)) };
        let mut drawn = [0; Header::BYTES];
        aws_lc_rs::rand::fill(&mut drawn).map_err(|_| io::Error::other("no random bytes can be had"))?;
        let (header, stream) = PushStream::init(Drawn(drawn), &StreamKey::from(*key));
        inner.write_all(header.as_ref())?;
        Ok(Sealer::Sealed { stream, message: Vec::with_capacity(MESSAGE + OVERHEAD), inner })
    }

    /// Writes the last message, and gives back what is below.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Sealer::Plain(inner) => Ok(inner),
            Sealer::Sealed { mut stream, mut message, mut inner } => {
                push(&mut stream, &mut message, Tag::Final, &mut inner)?;
                Ok(inner)
            }
        }
    }
}

fn push<W: Write>(stream: &mut PushStream, message: &mut Vec<u8>, tag: Tag, to: &mut W) -> io::Result<()> {
    stream.push(message, &[], tag).map_err(|_| io::Error::other("sealing failed"))?;
    to.write_all(message)?;
    message.clear();
    Ok(())
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sealer::Plain(inner) => inner.write(bytes),
            Sealer::Sealed { stream, message, inner } => {
                // A full message waits until more comes: it may be the last.
                if message.len() == MESSAGE {
                    push(stream, message, Tag::Message, inner)?;
                }
                let take = bytes.len().min(MESSAGE - message.len());
                message.extend_from_slice(&bytes[..take]);
                Ok(take)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads what was sealed.
pub(crate) enum Opener<R> {
    Plain(R),
    Sealed { stream: PullStream, message: Vec<u8>, at: usize, last: bool, inner: R },
}

impl<R: Read> Opener<R> {
    pub(crate) fn new(key: Option<&Key>, mut inner: R) -> io::Result<Self> {
        let Some(Key(key)) = key else { return Ok(Opener::Plain(inner)) };
        let mut header = [0; Header::BYTES];
        inner.read_exact(&mut header)?;
        let stream = PullStream::init(Header::from(header), &StreamKey::from(*key));
        let message = Vec::with_capacity(MESSAGE + OVERHEAD);
        Ok(Opener::Sealed { stream, message, at: 0, last: false, inner })
    }
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let (stream, message, at, last, inner) = match self {
            Opener::Plain(inner) => return inner.read(out),
            Opener::Sealed { stream, message, at, last, inner } => (stream, message, at, last, inner),
        };
        while *at == message.len() && !*last {
            message.clear();
            *at = 0;
            inner.by_ref().take((MESSAGE + OVERHEAD) as u64).read_to_end(message)?;
            if message.is_empty() {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the last sealed message is missing",
                ));
            }
            let wrong =
                |_| io::Error::new(io::ErrorKind::InvalidData, "the seal is broken, or the key is another");
            *last = stream.pull(message, &[]).map_err(wrong)? == Tag::Final;
        }
        let take = out.len().min(message.len() - *at);
        out[..take].copy_from_slice(&message[*at..*at + take]);
        *at += take;
        Ok(take)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(digit: &str) -> Key {
        Key::from_hex(&Secret::new(digit.repeat(64))).unwrap()
    }

    fn seal(key: &Key, plain: &[u8]) -> Vec<u8> {
        let mut sealer = Sealer::new(Some(key), Vec::new()).unwrap();
        sealer.write_all(plain).unwrap();
        sealer.finish().unwrap()
    }

    fn open(key: &Key, sealed: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        Opener::new(Some(key), sealed)?.read_to_end(&mut plain)?;
        Ok(plain)
    }

    #[test]
    fn a_key_that_is_none_is_refused_without_being_shown() {
        for bad in ["", "abc", &"g".repeat(64), &"é".repeat(32)] {
            let error = Key::from_hex(&Secret::new(bad)).unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal") && (bad.len() < 3 || !error.contains(bad)), "{error}");
        }
        assert_eq!(format!("{:?}", key("7")), "Key(…)");
    }

    #[test]
    fn messages_are_of_the_size_that_others_expect() {
        for (plain, messages) in [(0, 1), (1, 1), (MESSAGE, 1), (MESSAGE + 1, 2), (3 * MESSAGE, 3)] {
            assert_eq!(seal(&key("1"), &vec![7; plain]).len(), 24 + plain + messages * OVERHEAD, "{plain}");
        }
    }

    #[test]
    fn what_was_cut_off_is_missed_even_between_messages() {
        let sealed = seal(&key("1"), &vec![7; 2 * MESSAGE]);
        assert!(open(&key("1"), &sealed[..24 + MESSAGE + OVERHEAD]).is_err());
        assert!(open(&key("2"), &sealed).is_err(), "another key");
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_a_changed_byte_is_found(
            length in 0_usize..3 * MESSAGE, at in any::<prop::sample::Index>(), bit in 0_u8..8,
        ) {
            let plain: Vec<u8> = (0..length).map(|number| (number % 251) as u8).collect();
            let mut sealed = seal(&key("a"), &plain);
            prop_assert_eq!(open(&key("a"), &sealed).unwrap(), plain);
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert!(open(&key("a"), &sealed).is_err());
        }
    }
}
