//! Certificates and kubeconfigs of one cluster, made anew each time it starts.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::error::{During, Error, Result};

/// The cluster's certificate authority and the folder for what it signs.
pub(crate) struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// A new authority. Its certificate is `ca.crt`.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).during("creating", folder)?;
        let key = KeyPair::generate().map_err(refused)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "keelson-testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(refused)?;
        write(folder, "ca.crt", &certificate.pem())?;
        let pki = Pki { folder: folder.to_path_buf(), issuer: Issuer::new(params, key) };
        // Signs the tokens of service accounts.
        let tokens = KeyPair::generate().map_err(refused)?;
        write(folder, "tokens.key", &tokens.serialize_pem())?;
        write(folder, "tokens.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// A file of this folder, as an argument.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// `NAME.crt` and `NAME.key`, for a server at these addresses or for a client, or both.
    pub(crate) fn sign(
        &self,
        name: &str,
        subject: &str,
        groups: &[&str],
        addresses: &[IpAddr],
        names: &[&str],
    ) -> Result<()> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = addresses.iter().map(|&address| SanType::IpAddress(address)).collect();
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into().map_err(refused)?));
        }
        let key = KeyPair::generate().map_err(refused)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(refused)?;
        write(&self.folder, &format!("{name}.crt"), &certificate.pem())?;
        write(&self.folder, &format!("{name}.key"), &key.serialize_pem())
    }

    /// The API server's certificates: its own, and the ones it shows to kubelets and to extensions.
    pub(crate) fn sign_api_server(&self, addresses: &[Ipv4Addr]) -> Result<()> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|&address| IpAddr::V4(address)).collect();
        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"];
        self.sign("apiserver", "kube-apiserver", &[], &addresses, &names)?;
        self.sign("apiserver-kubelet", "kube-apiserver", &["system:masters"], &[], &[])?;
        self.sign("front-proxy", "front-proxy", &[], &[], &[])
    }

    /// A client that may do anything, and its kubeconfig with everything inside.
    pub(crate) fn write_admin(&self, server: &str, kubeconfig: &Path) -> Result<()> {
        self.sign("admin", "admin", &["system:masters"], &[], &[])?;
        self.write_kubeconfig("admin", server, kubeconfig)
    }

    /// A kubeconfig for a client that was signed before.
    pub(crate) fn write_kubeconfig(&self, client: &str, server: &str, kubeconfig: &Path) -> Result<()> {
        let data = |name: String| -> Result<String> {
            let path = self.folder.join(name);
            fs::read(&path).during("reading", &path).map(|bytes| BASE64_STANDARD.encode(bytes))
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\n\
             clusters:\n- name: testbed\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\n\
             users:\n- name: {client}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
             contexts:\n- name: testbed\n  context: {{cluster: testbed, user: {client}}}\n\
             current-context: testbed\n",
            data("ca.crt".into())?,
            data(format!("{client}.crt"))?,
            data(format!("{client}.key"))?,
        );
        write_secret(kubeconfig, &text)
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    write_secret(&folder.join(name), text)
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).during("writing", path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).during("protecting", path)
}

fn refused(error: rcgen::Error) -> Error {
    Error::Refused(format!("making a certificate: {error}"))
}
