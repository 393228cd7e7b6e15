//! Private keys in the three formats that certificate authorities use.

use rcgen::KeyPair;
use x509_parser::pem::Pem;

/// The DER encodings of the algorithm identifiers with which a PKCS#8 envelope begins.
const RSA: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
const P384: &[u8] =
    &[0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

/// Parses the first private key of a PEM file: PKCS#8, PKCS#1 (RSA) or SEC 1 (EC).
///
/// # Errors
/// They say what is wrong, and which keys are accepted.
pub fn parse(pem: &[u8]) -> Result<KeyPair, String> {
    const GOOD: &str =
        "an unencrypted RSA (2048 to 4096 bits), EC P-256, EC P-384 or Ed25519 key in PEM form is needed";
    for block in Pem::iter_from_buffer(pem) {
        let block = block.map_err(|error| format!("it is not a PEM file ({error}); {GOOD}"))?;
        let candidates = match block.label.as_str() {
            "PRIVATE KEY" => vec![block.contents],
            "RSA PRIVATE KEY" => vec![pkcs8(RSA, &block.contents)],
            // The key may or may not name its curve. Either way, the wrong envelope is rejected.
            "EC PRIVATE KEY" => vec![pkcs8(P256, &block.contents), pkcs8(P384, &block.contents)],
            "ENCRYPTED PRIVATE KEY" => return Err(format!("the key is encrypted; {GOOD}")),
            _ => continue,
        };
        let key = candidates.iter().find_map(|der| KeyPair::try_from(der.as_slice()).ok());
        return key.ok_or_else(|| format!("the key is of an unsupported kind or damaged; {GOOD}"));
    }
    Err(format!("there is no private key in it; {GOOD}"))
}

/// Puts a bare key into a PKCS#8 envelope.
fn pkcs8(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let version = [0x02, 0x01, 0x00];
    let content = [&version, algorithm, &der(0x04, key)].concat();
    der(0x30, &content)
}

/// A DER element.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut element = vec![tag];
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|b| **b == 0).count()..];
    match (content.len(), u8::try_from(length.len())) {
        (short @ 0..128, _) => element.push(short.to_le_bytes()[0]),
        (_, Ok(count)) => {
            element.push(0x80 | count);
            element.extend_from_slice(length);
        }
        (_, Err(_)) => unreachable!("a length has at most eight bytes"),
    }
    element.extend_from_slice(content);
    element
}
