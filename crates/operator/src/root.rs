//! What all secrets follow from: one key and one authority, kept in a Secret of the operator's own
//! namespace.
//!
//! The operator has no right to read the Secrets of databases, so it must be able to write the same
//! ones again without knowing what is there. Passwords are therefore derived from the key and from whose
//! they are. Certificates can't be derived, but any one that the authority signed is as good as another.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use keelson_api::instance::fingerprint;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use thiserror::Error;

/// The Secret in the operator's own namespace.
pub const SECRET: &str = "keelson-root";

/// Clocks may differ by this much.
const BACKDATE: Duration = Duration::from_secs(3600);
/// How long the authority lasts.
const AUTHORITY_LASTS: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Why there is no root. It never tells what is in it.
#[derive(Debug, Error)]
pub enum RootError {
    /// The API server refused, or did not answer.
    #[error("{doing} Secret {namespace}/{SECRET}: {source}")]
    Api {
        /// What was tried.
        doing: &'static str,
        /// Where.
        namespace: String,
        /// What came of it.
        #[source]
        source: kube::Error,
    },
    /// It does not hold what it should.
    #[error(
        "Secret {namespace}/{SECRET} lacks {field}, or it can't be read. Put it back from a copy; if there is \
         none, delete the Secret and start the operator anew, and every password and certificate will change"
    )]
    Damaged {
        /// Where.
        namespace: String,
        /// What is missing.
        field: &'static str,
    },
    /// A key or a certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// There is no randomness.
    #[error("the system gave no random bytes")]
    Random,
}

/// One key and one authority.
pub struct Root {
    key: hmac::Key,
    authority: String,
    authority_name: String,
    authority_key: KeyPair,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Root(..)")
    }
}

/// A certificate with its key, both as PEM.
pub struct Leaf {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Whose secrets they are. A database that is made anew under its name has others.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// The Database's namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// The text by which its owner asked for other secrets; empty if never.
    pub rotation: &'a str,
}

impl Root {
    /// The root of this operator, made if there is none. Of several processes that make one at the same
    /// time, one succeeds and the others take its.
    pub async fn open(client: Client, namespace: &str) -> Result<Root, RootError> {
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        let failed = |doing, source| RootError::Api { doing, namespace: namespace.to_owned(), source };
        let found = secrets.get_opt(SECRET).await.map_err(|source| failed("reading", source))?;
        if let Some(found) = found {
            return Root::read(namespace, &found);
        }
        let made = Root::make(Timestamp::now())?;
        match secrets.create(&PostParams::default(), &made).await {
            Ok(made) => Root::read(namespace, &made),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = secrets.get(SECRET).await.map_err(|source| failed("reading", source))?;
                Root::read(namespace, &found)
            }
            Err(source) => Err(failed("creating", source)),
        }
    }

    /// A new one, as it is stored.
    pub fn make(now: Timestamp) -> Result<Secret, RootError> {
        let mut key = [0; 32];
        rand::fill(&mut key).map_err(|_| RootError::Random)?;
        let authority_key = KeyPair::generate()?;
        let name = format!("keelson {}", now.as_second());
        let mut params = authority(&name);
        valid(&mut params, now, now.saturating_add(AUTHORITY_LASTS).unwrap_or(now));
        let certificate = params.self_signed(&authority_key)?.pem();
        let data = BTreeMap::from([
            ("key".to_owned(), ByteString(key.to_vec())),
            ("ca.name".to_owned(), ByteString(name.into_bytes())),
            ("ca.crt".to_owned(), ByteString(certificate.into_bytes())),
            ("ca.key".to_owned(), ByteString(authority_key.serialize_pem().into_bytes())),
        ]);
        let metadata = ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() };
        Ok(Secret { metadata, data: Some(data), ..Secret::default() })
    }

    /// What a Secret holds.
    pub fn read(namespace: &str, secret: &Secret) -> Result<Root, RootError> {
        let damaged = |field| RootError::Damaged { namespace: namespace.to_owned(), field };
        let field = |name: &'static str| {
            let found = secret.data.as_ref().and_then(|data| data.get(name));
            found.map(|found| found.0.clone()).filter(|found| !found.is_empty()).ok_or_else(|| damaged(name))
        };
        let text = |name: &'static str| String::from_utf8(field(name)?).map_err(|_| damaged(name));
        let key = field("key")?;
        if key.len() < 32 {
            return Err(damaged("key"));
        }
        Ok(Root {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            authority: text("ca.crt")?,
            authority_name: text("ca.name")?,
            authority_key: KeyPair::from_pem(&text("ca.key")?).map_err(|_| damaged("ca.key"))?,
        })
    }

    /// The password for a purpose: the same each time.
    pub fn password(&self, whose: Whose<'_>, purpose: &str) -> String {
        let Whose { namespace, name, uid, rotation } = whose;
        let text = format!("{namespace}/{name}/{uid}/{purpose}/{rotation}");
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, text.as_bytes()))
    }

    /// Stands for all secrets of a database, without telling any: it changes when one of them does.
    pub fn mark(&self, whose: Whose<'_>) -> String {
        fingerprint(&format!("{} {}", self.password(whose, "mark"), self.authority))
    }

    /// The authority's certificate, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A certificate for these names, good for both ends of a connection.
    pub fn sign(
        &self,
        subject: &str,
        names: &[String],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Leaf, RootError> {
        let mut params = CertificateParams::new(names)?;
        valid(&mut params, now, until);
        params.distinguished_name.push(DnType::CommonName, subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let issuer = Issuer::new(authority(&self.authority_name), &self.authority_key);
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem() })
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn valid(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let second =
        |moment: Timestamp| Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or_default());
    params.not_before = date_time_ymd(1970, 1, 1) + second(from).saturating_sub(BACKDATE);
    params.not_after = date_time_ymd(1970, 1, 1) + second(until);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        Root::read("keelson-system", &Root::make(now()).unwrap()).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    const WHOSE: Whose<'_> = Whose { namespace: "shop", name: "orders", uid: "1", rotation: "" };

    #[test]
    fn passwords_are_the_same_each_time_and_differ_by_whose_they_are_and_what_for() {
        let root = root();
        let first = root.password(WHOSE, "app");
        assert_eq!(first, root.password(WHOSE, "app"));
        assert_eq!(first.len(), 43);
        let others = [
            root.password(WHOSE, "superuser"),
            root.password(Whose { uid: "2", ..WHOSE }, "app"),
            root.password(Whose { rotation: "again", ..WHOSE }, "app"),
            self::root().password(WHOSE, "app"),
        ];
        assert!(others.iter().all(|other| *other != first));
        assert_ne!(root.mark(WHOSE), root.mark(Whose { rotation: "again", ..WHOSE }));
    }

    #[test]
    fn a_certificate_is_signed_and_nothing_secret_is_printed() {
        let root = root();
        let until = now() + jiff::SignedDuration::from_hours(24);
        let leaf =
            root.sign("orders.shop", &["orders".to_owned(), "*.orders.shop.svc".to_owned()], now(), until);
        let leaf = leaf.unwrap();
        assert!(leaf.certificate.contains("BEGIN CERTIFICATE") && leaf.key.contains("PRIVATE KEY"));
        assert_eq!(format!("{root:?}"), "Root(..)");
    }

    #[test]
    fn a_damaged_secret_is_refused_with_what_to_do_and_without_what_is_in_it() {
        for field in ["key", "ca.crt", "ca.key", "ca.name"] {
            let mut secret = Root::make(now()).unwrap();
            secret.data.as_mut().unwrap().insert(field.to_owned(), ByteString(Vec::new()));
            let said = Root::read("keelson-system", &secret).unwrap_err().to_string();
            assert!(said.contains(field) && said.contains("Put it back"), "{said}");
        }
    }
}
