//! TLS 1.3 with a key of the server's own: a client knows the server by the checksum of its certificate, which stands
//! in its invitation. No authority vouches for anybody.

use std::io;
use std::sync::Arc;

use ring::digest::{digest, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring::default_provider, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, PeerIncompatible,
    ServerConfig, ServerConnection, SignatureScheme,
};

/// The name in every certificate: it says nothing, as it is the key that counts.
const NAME: &str = "bluefs";

/// SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("32 bytes")
}

/// Bytes that nobody can guess. They come from the kernel, and need no descriptor.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // getrandom(2): once the system has started it neither fails nor waits.
    SystemRandom::new().fill(&mut bytes).expect("the kernel has random numbers");
    bytes
}

/// A server's key and certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Identity {
    /// A new one.
    pub fn generate() -> io::Result<Identity> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
        Ok(Identity { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() })
    }

    /// For a file that only the server reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let len = (self.certificate.len() as u32).to_le_bytes();
        [&len[..], &self.certificate, &self.key].concat()
    }

    /// From that file.
    pub fn from_bytes(bytes: &[u8]) -> Option<Identity> {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (certificate, key) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        (!key.is_empty()).then(|| Identity { certificate: certificate.to_vec(), key: key.to_vec() })
    }

    /// By what clients know it.
    pub fn fingerprint(&self) -> [u8; 32] {
        sha256(&self.certificate)
    }
}

/// How a server answers.
#[derive(Clone)]
pub struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// With this identity.
    pub fn new(identity: &Identity) -> io::Result<Acceptor> {
        let chain = vec![CertificateDer::from(identity.certificate.clone())];
        let key = PrivatePkcs8KeyDer::from(identity.key.clone());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key.into()));
        Ok(Acceptor(Arc::new(config.map_err(io::Error::other)?)))
    }

    pub(crate) fn connection(&self) -> io::Result<Connection> {
        Ok(ServerConnection::new(self.0.clone()).map_err(io::Error::other)?.into())
    }
}

/// How a client asks: only the server with this fingerprint is the right one.
pub(crate) fn client(fingerprint: [u8; 32]) -> io::Result<Connection> {
    let provider = Arc::new(default_provider());
    let pinned = Pinned { fingerprint, provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(io::Error::other)?.dangerous();
    let config = builder.with_custom_certificate_verifier(Arc::new(pinned)).with_no_client_auth();
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    Ok(ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?.into())
}

#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer,
        _: &[CertificateDer],
        _: &ServerName,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if sha256(certificate) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
