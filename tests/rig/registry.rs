//! Image registries of the CNCF on loopback, without authentication, with a user, or with a token server; and a client that puts
//! small images into their storage.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PKCS_ED25519, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::process::{Process, run};
use super::programs::registry;
use super::workspace::Workspace;

/// How long one may take to answer.
const DEADLINE: Duration = Duration::from_mins(1);

/// The user of registries with authentication. The password must never be in any output.
pub const USER: (&str, &str) = ("puller", "password-canary");

/// The user in a file of Apache's `htpasswd`, as bcrypt hashes the password.
const HTPASSWD: &str = "puller:$2a$04$mIawbSgYt4AKxWoqil2YsuG8HNYx/6bK0WWVIdR/LhRdEdpqBNPyy\n";

/// The name of registries at the token server.
const SERVICE: &str = "registry.test";

/// How a registry authenticates its clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It serves everyone.
    Open,
    /// With a user name and a password.
    Basic,
    /// With a token of a token server, which gives tokens only to the user.
    Token,
}

/// A running registry. Killed on drop.
pub struct Registry {
    _process: Process,
    /// Its host and port, as images name them.
    pub host: String,
    _workspace: Workspace,
}

impl Registry {
    /// Starts one. Several can share a storage.
    pub async fn start(storage: &Path, access: Access) -> Self {
        let start = |port| {
            let workspace = Workspace::create("registry");
            (serve(storage, access, &format!("127.0.0.1:{port}"), &workspace), workspace)
        };
        let (process, port, workspace) = Process::listening(DEADLINE, start).await;
        Self { _process: process, host: format!("127.0.0.1:{port}"), _workspace: workspace }
    }

    /// Puts an image into the storage, for any platform.
    pub fn push(&self, repository: &str, tag: &str) {
        self.put_manifest(repository, tag, &self.manifest(repository));
    }

    /// Puts an image for one platform into the storage, as an index.
    pub fn push_index(&self, repository: &str, tag: &str, (os, architecture): (&str, &str)) {
        let manifest = self.manifest(repository);
        let digest = self.put_manifest(repository, "of-index", &manifest);
        let descriptor = json!({
            "mediaType": manifest["mediaType"], "digest": digest, "size": manifest.to_string().len(),
            "platform": {"os": os, "architecture": architecture},
        });
        let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [descriptor]});
        self.put_manifest(repository, tag, &index);
    }

    /// Returns the manifest of an image without content.
    fn manifest(&self, repository: &str) -> Value {
        let (content, digest) = ("{}", digest("{}"));
        let url = format!("http://{}/v2/{repository}/blobs/uploads/", self.host);
        let headers = curl(&["--request", "POST", "--include", &url]);
        let location =
            headers.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a place").trim();
        curl(&[
            "--request",
            "PUT",
            "--header",
            "Content-Type: application/octet-stream",
            "--data-binary",
            content,
            &format!("{location}&digest={digest}"),
        ]);
        let blob = json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": content.len()});
        json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": blob, "layers": [blob]})
    }

    fn put_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> String {
        let media_type = manifest["mediaType"].as_str().expect("a media type");
        let content = manifest.to_string();
        curl(&[
            "--request",
            "PUT",
            "--header",
            &format!("Content-Type: {media_type}"),
            "--data-binary",
            &content,
            &format!("http://{}/v2/{repository}/manifests/{tag}", self.host),
        ]);
        digest(&content)
    }
}

/// Returns the content of `.dockerconfigjson` with the user for a registry.
pub fn docker_config(host: &str, (name, password): (&str, &str)) -> String {
    let auth = STANDARD.encode(format!("{name}:{password}"));
    json!({"auths": {host: {"auth": auth}}}).to_string()
}

fn serve(storage: &Path, access: Access, host: &str, workspace: &Workspace) -> Process {
    let auth = match access {
        Access::Open => Value::Null,
        Access::Basic => {
            let file = workspace.write("htpasswd", HTPASSWD);
            json!({"htpasswd": {"realm": "registry", "path": file}})
        }
        Access::Token => {
            let (realm, keys) = start_token_server();
            let file = workspace.write("keys.json", keys.to_string());
            json!({"token": {"realm": realm, "service": SERVICE, "issuer": "rig", "jwks": file}})
        }
    };
    let mut configuration = json!({
        "version": "0.1", "log": {"level": "warn", "accesslog": {"disabled": true}}, "http": {"addr": host},
        "storage": {"filesystem": {"rootdirectory": storage}},
    });
    if !auth.is_null() {
        configuration["auth"] = auth;
    }
    // JSON is YAML.
    let file = workspace.write("registry.yml", configuration.to_string());
    let arguments = [
        "OTEL_TRACES_EXPORTER=none".to_owned(),
        registry().display().to_string(),
        "serve".to_owned(),
        file.display().to_string(),
    ];
    Process::start("registry", Path::new("/usr/bin/env"), &arguments, &workspace.join("registry.log"))
}

/// Starts a token server (`distribution`, `docs/content/spec/auth/token.md`) in a thread of its own. Returns its URL and its keys.
fn start_token_server() -> (String, Value) {
    let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let keys = json!({"keys": [{
        "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "rig",
        "x": URL_SAFE_NO_PAD.encode(key.public_key_raw()),
    }]});
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let realm = format!("http://{}/token", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = token_answer(&request(&mut stream), &key);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (realm, keys)
}

/// Reads the head of a request.
fn request(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn token_answer(request: &str, key: &KeyPair) -> String {
    let (name, password) = USER;
    let wanted = format!("basic {}", STANDARD.encode(format!("{name}:{password}"))).to_lowercase();
    let is_user = request.lines().any(|line| line.to_lowercase() == format!("authorization: {wanted}"));
    let has_credentials = request.to_lowercase().contains("\r\nauthorization: ");
    if has_credentials && !is_user {
        return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned();
    }
    let query = request.split([' ', '?']).nth(2).unwrap_or_default();
    let scope = query.split('&').find_map(|part| part.strip_prefix("scope=")).unwrap_or_default();
    let repository = scope.trim_start_matches("repository:").trim_end_matches(":pull");
    // An anonymous client gets a token that allows nothing, as from Docker Hub.
    let actions = if is_user { json!(["pull"]) } else { json!([]) };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs();
    let claims = json!({
        "iss": "rig", "sub": "", "aud": SERVICE, "exp": now + 300, "nbf": now - 60, "iat": now, "jti": "1",
        "access": [{"type": "repository", "name": repository, "actions": actions}],
    });
    let header = json!({"typ": "JWT", "alg": "EdDSA", "kid": "rig"});
    let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).expect("a signature"));
    let body = json!({"token": format!("{signed}.{signature}")}).to_string();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn digest(content: &str) -> String {
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&Sha256::digest(content.as_bytes())))
}

fn curl(arguments: &[&str]) -> String {
    let all = [&["--silent", "--show-error", "--fail"], arguments].concat();
    run(Path::new("curl"), &all, &[])
}
