//! Making and checking pairs of authority and certificate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, RootCertStore};

use super::plan::{Authority, Pair, Settings};

/// A private key as PEM, which no log gets to see.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateKey(String);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// What an authority signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// The certificate, as PEM.
    pub certificate: String,
    /// Its key.
    pub key: PrivateKey,
}

/// A pair that is not what it should be. It never tells what the key is.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    #[error("its certificate or key is not PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("it is not one that can be served with: {0}")]
    Tls(#[from] rustls::Error),
    #[error("its authority can't be used: {0}")]
    Authority(#[from] rustls::client::VerifierBuilderError),
    #[error("`{0}` is neither a DNS name nor an address")]
    Name(String),
    #[error("it is for no name at all")]
    NoName,
    #[error("its times are out of range")]
    Times,
}

/// Makes a pair: an authority that signs one certificate, after which its key is forgotten.
pub(crate) fn make(
    names: &[String],
    now: Timestamp,
    settings: &Settings,
) -> Result<Pair<Signed>, rcgen::Error> {
    let second = u64::try_from(now.as_second()).unwrap_or_default();
    let (from, until) = (
        second.saturating_sub(settings.backdate.as_secs()),
        second.saturating_add(settings.lifetime.as_secs()),
    );
    let valid = |params: &mut CertificateParams| {
        params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(from);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(until);
    };
    let mut authority = CertificateParams::default();
    valid(&mut authority);
    // Names that differ make it plain, in any tool, which of them signed what.
    authority.distinguished_name.push(DnType::CommonName, format!("webhook authority {second}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?.pem();

    let mut params = CertificateParams::new(names)?;
    valid(&mut params);
    params.distinguished_name.push(DnType::CommonName, "webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &Issuer::new(authority, authority_key))?.pem();
    let time = |second: u64| {
        let moment = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
        Time(moment.unwrap_or(Timestamp::MAX))
    };
    Ok(Pair {
        authority: Authority { certificate: authority_certificate, until: time(until) },
        from: time(from),
        names: names.to_vec(),
        signed: Signed { certificate, key: PrivateKey(key.serialize_pem()) },
    })
}

/// What TLS is served with.
pub(crate) fn certified(signed: &Signed) -> Result<CertifiedKey, Fault> {
    let certificate = CertificateDer::from_pem_slice(signed.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(signed.key.0.as_bytes())?;
    // This refuses a key that does not belong to the certificate.
    Ok(CertifiedKey::from_der(vec![certificate], key, &provider())?)
}

/// Whether somebody who trusts nothing but its authority would accept it at that moment, for each
/// of its names.
pub(crate) fn check(pair: &Pair<Signed>, at: Timestamp) -> Result<(), Fault> {
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots(&pair.authority)?), Arc::new(provider()))
            .build()?;
    let certificate = CertificateDer::from_pem_slice(pair.signed.certificate.as_bytes())?;
    let second = u64::try_from(at.as_second()).map_err(|_| Fault::Times)?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(second));
    if pair.names.is_empty() {
        return Err(Fault::NoName);
    }
    for name in &pair.names {
        let name = ServerName::try_from(name.as_str()).map_err(|_| Fault::Name(name.clone()))?;
        verifier.verify_server_cert(&certificate, &[], &name, &[], at)?;
    }
    Ok(())
}

/// Whether all that a pair says of itself is true: the key is the certificate's, and it is valid from
/// the beginning to the end of its time, for each of its names.
pub(crate) fn verify(pair: &Pair<Signed>) -> Result<(), Fault> {
    certified(&pair.signed)?;
    check(pair, pair.from.0)?;
    check(pair, pair.authority.until.0)
}

/// An authority as somebody who trusts it has it.
pub(crate) fn roots(authority: &Authority) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes())?)?;
    Ok(roots)
}

/// The one implementation of cryptography in the program.
pub(crate) fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Pair<Signed> {
        let names = ["shop.example", "127.0.0.1"].map(str::to_owned);
        make(&names, Timestamp::from_second(1_800_000_000).unwrap(), &Settings::default()).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_pair_is_valid_from_an_hour_before_to_the_end_of_its_life_and_for_its_names() {
        let pair = made();
        assert_eq!(pair.from.0, at(1_800_000_000 - 3600));
        assert_eq!(pair.authority.until.0, at(1_800_000_000 + 90 * 86_400));
        for good in [pair.from.0, at(1_800_000_000), pair.authority.until.0] {
            check(&pair, good).unwrap();
        }
        for bad in [pair.from.0.as_second() - 1, pair.authority.until.0.as_second() + 1] {
            check(&pair, at(bad)).unwrap_err();
        }
        let other = Pair { names: vec!["other.example".to_owned()], ..pair.clone() };
        check(&other, at(1_800_000_000)).unwrap_err();
        check(&Pair { authority: made().authority, ..pair }, at(1_800_000_000)).unwrap_err();
    }

    #[test]
    fn a_pair_for_what_is_no_name_is_noticed_before_it_is_stored() {
        for names in [vec![], vec!["*".to_owned()], vec!["a b".to_owned()]] {
            let made = make(&names, at(1_800_000_000), &Settings::default()).unwrap();
            verify(&made).unwrap_err();
        }
    }

    #[test]
    fn a_key_that_is_not_the_certificates_is_refused_and_no_key_is_ever_printed() {
        let (one, other) = (made(), made());
        certified(&one.signed).unwrap();
        let mixed = Signed { key: other.signed.key.clone(), ..one.signed.clone() };
        let fault = certified(&mixed).unwrap_err();
        let secret = one.signed.key.0.lines().nth(1).unwrap();
        let said = format!("{one:?} {mixed:?} {fault:?} {fault}");
        assert!(!said.contains(secret) && !said.contains("PRIVATE KEY"), "{said}");
    }
}
