//! Verifiers of passwords: what the server stores, and all that it is ever told.

use std::num::NonZeroU32;

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::prelude::{BASE64_STANDARD, Engine};

use crate::secret::Secret;

/// A new verifier, with a salt of its own.
pub(crate) fn verifier(password: &Secret) -> String {
    postgres_protocol::password::scram_sha_256(password.reveal().as_bytes())
}

/// Whether a stored verifier (`SCRAM-SHA-256$4096:salt$stored:server`) is of this password. One that can't
/// be read is not, and neither is one of a password that would have to be normalised first: setting it
/// again does no harm.
pub(crate) fn verifies(stored: &str, password: &Secret) -> bool {
    let parts = || {
        let (head, keys) = stored.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (rounds, salt) = head.split_once(':')?;
        let stored_key = BASE64_STANDARD.decode(keys.split_once(':')?.0).ok()?;
        Some((rounds.parse::<NonZeroU32>().ok()?, BASE64_STANDARD.decode(salt).ok()?, stored_key))
    };
    let Some((rounds, salt, stored_key)) = parts() else { return false };
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.reveal().as_bytes(), &mut salted);
    let client_key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &salted), b"Client Key");
    let found = digest::digest(&digest::SHA256, client_key.as_ref());
    constant_time::verify_slices_are_equal(found.as_ref(), &stored_key).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_fits_its_password_and_no_other() {
        let stored = verifier(&Secret::new("right"));
        assert!(verifies(&stored, &Secret::new("right")));
        assert!(!verifies(&stored, &Secret::new("wrong")));
        assert_ne!(stored, verifier(&Secret::new("right")), "each has a salt of its own");
    }

    #[test]
    fn what_is_no_verifier_fits_nothing() {
        for stored in ["", "md5abc", "SCRAM-SHA-256$0:AA==$AA==:AA==", "SCRAM-SHA-256$4096:?$?:?", "right"] {
            assert!(!verifies(stored, &Secret::new("right")), "{stored}");
        }
    }
}
