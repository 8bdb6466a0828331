//! Asks registries for images.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode, Uri};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::challenge::Challenge;
use super::connection::{Connector, Reply};
use super::docker_config::Login;
use super::image_name::{ImageName, is_loopback};
use super::manifest;

/// Maximum number of requests for one image: redirects, the challenge, and the answer.
const MOST_REQUESTS: usize = 10;

/// What a registry answers about an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// The registry denies the image. Contains the reason.
    Denied(String),
    /// The registry does not have the image. Contains the reason.
    Missing(String),
    /// The registry does not answer this machine, or not as a registry does. Contains the reason.
    Unknown(String),
    /// The registry has the image. Contains the platforms of an index, such as `linux/amd64`, if they were requested.
    Present(Option<BTreeSet<String>>),
}

/// Asks registries. It asks a registry that does not answer only once.
pub struct Registries {
    connector: Connector,
    /// Hosts that do not answer, with the reason.
    silent: Mutex<BTreeMap<String, String>>,
}

impl Registries {
    /// Reads the CA certificates of this machine.
    pub fn new() -> Result<Self, String> {
        Ok(Self { connector: Connector::new()?, silent: Mutex::default() })
    }

    /// Asks the registry of an image for its manifest, with each login until one is accepted, as the kubelet does. Without a login, asks
    /// without credentials. `with_platforms`: whether to read the platforms of an index. For this, the manifest is read, which a
    /// registry can count as a pull.
    pub async fn ask(&self, image: &ImageName, logins: &[Login], with_platforms: bool) -> Answer {
        let logins: Vec<Option<&Login>> =
            if logins.is_empty() { vec![None] } else { logins.iter().map(Some).collect() };
        let mut found = Answer::Denied(String::new());
        for login in logins {
            let answer = self.ask_with(image, login, with_platforms).await;
            if matches!(answer, Answer::Present(_)) {
                return answer;
            }
            found = found.max(answer);
        }
        found
    }

    async fn ask_with(&self, image: &ImageName, login: Option<&Login>, with_platforms: bool) -> Answer {
        let silent = || self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = silent().get(image.host()) {
            return Answer::Unknown(reason.clone());
        }
        let Ok(url) = image.manifest_url().parse() else {
            return Answer::Unknown("its name cannot be part of a URL".to_string());
        };
        let inquiry = Inquiry {
            connector: &self.connector,
            image,
            login,
            with_platforms,
            method: Method::HEAD,
            url,
            authorization: None,
            is_elsewhere: false,
        };
        inquiry.run().await.unwrap_or_else(|reason| {
            silent().insert(image.host().to_string(), reason.clone());
            Answer::Unknown(reason)
        })
    }
}

/// The requests for one image with one login.
struct Inquiry<'a> {
    connector: &'a Connector,
    image: &'a ImageName,
    login: Option<&'a Login>,
    with_platforms: bool,
    method: Method,
    url: Uri,
    authorization: Option<HeaderValue>,
    /// Whether the registry has redirected to another host. This host gets no credentials.
    is_elsewhere: bool,
}

impl Inquiry<'_> {
    /// Sends requests until one decides. The error is the reason why a server does not answer.
    async fn run(mut self) -> Result<Answer, String> {
        for _ in 0..MOST_REQUESTS {
            let authorization = self.authorization.as_ref();
            let reply =
                self.connector.send(&self.method, &self.url, manifest::ACCEPTED, authorization).await?;
            if let Some(answer) = self.continue_with(&reply).await? {
                return Ok(answer);
            }
        }
        Ok(Answer::Unknown("the registry redirects too often".to_string()))
    }

    /// Decides with an answer, or prepares the next request.
    async fn continue_with(&mut self, reply: &Reply) -> Result<Option<Answer>, String> {
        let (status, is_head) = (reply.status, self.method == Method::HEAD);
        if status.is_success() {
            return Ok(self.present(reply));
        }
        if status.is_redirection() {
            return Ok(self.redirect(reply));
        }
        if status == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            return self.authorize(reply).await;
        }
        let reason = reason(reply);
        Ok(Some(match status {
            StatusCode::TOO_MANY_REQUESTS => Answer::Unknown(reason),
            status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                Answer::Unknown(reason)
            }
            // Some registries refuse HEAD, and an answer to it has no reason.
            _ if is_head => {
                self.method = Method::GET;
                return Ok(None);
            }
            StatusCode::NOT_FOUND => Answer::Missing(reason),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Answer::Denied(reason),
            _ => Answer::Unknown(reason),
        }))
    }

    fn present(&mut self, reply: &Reply) -> Option<Answer> {
        let media_type =
            reply.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if media_type.starts_with("text/html") {
            return Some(Answer::Unknown("it answers with a web page, not with a manifest".to_string()));
        }
        let is_index = self.with_platforms && manifest::is_index(media_type);
        if is_index && self.method == Method::HEAD {
            self.method = Method::GET;
            return None;
        }
        let platforms = if is_index { manifest::platforms(&reply.body) } else { None };
        Some(Answer::Present(platforms))
    }

    /// Follows a redirect. A credential does not go to another host.
    fn redirect(&mut self, reply: &Reply) -> Option<Answer> {
        let location = reply.headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some(target) = target(&self.url, location) else {
            return Some(Answer::Unknown("it redirects to no HTTPS URL".to_string()));
        };
        if target.authority() != self.url.authority() || target.scheme() != self.url.scheme() {
            self.authorization = None;
            self.is_elsewhere = true;
        }
        self.url = target;
        None
    }

    /// Authorizes the next request, as the registry demands.
    async fn authorize(&mut self, reply: &Reply) -> Result<Option<Answer>, String> {
        let login = self.login.filter(|_| !self.is_elsewhere);
        let authorization = match Challenge::of(&reply.headers) {
            None => return Ok(Some(Answer::Denied(reason(reply)))),
            Some(Challenge::Basic) => match login {
                None => {
                    return Ok(Some(Answer::Denied("it requires a user name and a password".to_string())));
                }
                Some(login) => login.basic(),
            },
            Some(Challenge::Bearer { realm, service, scope }) => {
                let scope = scope.unwrap_or_else(|| self.image.scope());
                let query = [("service", service.as_deref()), ("scope", Some(scope.as_str()))];
                match self.token(&with_query(&realm, &query), login).await? {
                    Ok(token) => token,
                    Err(answer) => return Ok(Some(answer)),
                }
            }
        };
        self.authorization = secret_value(&authorization);
        Ok(self
            .authorization
            .is_none()
            .then(|| Answer::Denied("the credentials are no valid header".to_string())))
    }

    /// Requests a token.
    async fn token(
        &self,
        url: &str,
        login: Option<&Login>,
    ) -> Result<Result<Zeroizing<String>, Answer>, String> {
        let Some(url) = target(&self.url, url) else {
            return Ok(Err(Answer::Unknown("its token server does not use HTTPS".to_string())));
        };
        let basic = login.and_then(|login| secret_value(&login.basic()));
        let reply = self.connector.send(&Method::GET, &url, "application/json", basic.as_ref()).await?;
        let reason = || format!("the token server answers with {}", reason(&reply));
        if matches!(reply.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(Err(Answer::Denied(reason())));
        }
        let token = serde_json::from_slice::<Token>(&reply.body).ok().filter(|_| reply.status.is_success());
        let Some(token) = token.and_then(|token| token.token.or(token.access_token)) else {
            return Ok(Err(Answer::Unknown(reason())));
        };
        let token = Zeroizing::new(token);
        Ok(Ok(Zeroizing::new(format!("Bearer {}", token.as_str()))))
    }
}

/// The answer of a token server.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Returns a header value that no `Debug` output shows.
fn secret_value(text: &Zeroizing<String>) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the URL that a server names. It must use HTTPS. Only this machine can name itself over plain HTTP.
fn target(from: &Uri, location: &str) -> Option<Uri> {
    let authority = from.authority()?.as_str();
    let url = if location.starts_with('/') && !location.starts_with("//") {
        format!("{}://{authority}{location}", from.scheme_str()?)
    } else {
        location.to_string()
    };
    let url: Uri = url.parse().ok()?;
    let host = url.authority()?.as_str();
    let is_allowed = match url.scheme_str()? {
        "https" => !is_loopback(host) || is_loopback(authority),
        "http" => is_loopback(host) && is_loopback(authority),
        _ => false,
    };
    // A user name and a password in a URL are not sent, and `Host` must not contain them.
    (is_allowed && !host.contains('@')).then_some(url)
}

/// Adds parameters to a URL.
fn with_query(url: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut url = url.to_string();
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(name);
        url.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                    url.push(byte.into());
                }
                other => {
                    let _ = write!(url, "%{other:02X}");
                }
            }
        }
    }
    url
}

/// The answer of a registry that refuses a request.
#[derive(Deserialize)]
struct Refusal {
    errors: Vec<RefusalCode>,
}

#[derive(Deserialize)]
struct RefusalCode {
    code: String,
}

/// Returns the status of an answer, and its code, such as `MANIFEST_UNKNOWN`. A message could repeat a credential, so it is dropped.
fn reason(reply: &Reply) -> String {
    let status = format!("HTTP status {}", reply.status.as_u16());
    let refusal = serde_json::from_slice::<Refusal>(&reply.body).ok();
    let code = refusal.and_then(|refusal| refusal.errors.into_iter().next()).map(|first| first.code);
    let is_code = |code: &String| {
        (1..=40).contains(&code.len()) && code.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    match code.filter(is_code) {
        Some(code) => format!("{status}, {code}"),
        None => status,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::registry::Keyring;

    /// A server that answers each request by its head, and keeps the heads.
    struct Server {
        host: String,
        heads: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        fn start(answer: impl Fn(&str, &str) -> String + Send + 'static) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let host = listener.local_addr().unwrap().to_string();
            let heads = Arc::new(Mutex::new(Vec::new()));
            let (kept, own) = (Arc::clone(&heads), host.clone());
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let (mut head, mut byte) = (Vec::new(), [0]);
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1)
                    {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8(head).unwrap().to_lowercase();
                    let text = answer(&head, &own);
                    kept.lock().unwrap().push(head);
                    let _ = stream.write_all(text.as_bytes());
                }
            });
            Self { host, heads }
        }

        /// Returns the first lines of the requests, each with its credentials.
        fn requests(&self) -> Vec<String> {
            let told = |head: &String| {
                let with = head.lines().find_map(|line| line.strip_prefix("authorization: "));
                let line = head.lines().next().unwrap_or_default().trim_end_matches(" http/1.1");
                format!("{line} {}", with.unwrap_or("-"))
            };
            self.heads.lock().unwrap().iter().map(told).collect()
        }
    }

    fn reply(status: &str, headers: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
            body.len()
        )
    }

    fn logins(host: &str) -> Vec<Login> {
        let mut keyring = Keyring::default();
        keyring
            .add_config(json!({"auths": {host: {"username": "u", "password": "p"}}}).to_string().as_bytes())
            .unwrap();
        keyring.of(&ImageName::parse(&format!("{host}/a")).unwrap())
    }

    async fn ask(host: &str, logins: &[Login]) -> Answer {
        let image = ImageName::parse(&format!("{host}/a/b:1")).unwrap();
        Registries::new().unwrap().ask(&image, logins, false).await
    }

    #[tokio::test]
    async fn token_is_requested_with_the_credentials() {
        let server = Server::start(|head, own| match head {
            head if head.starts_with("get /token?") => reply("200 OK", "", "{\"access_token\": \"t\"}"),
            head if head.contains("authorization: bearer t") => reply("200 OK", "", ""),
            _ => reply(
                "401 Unauthorized",
                &format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=\"s v\"\r\n"),
                "",
            ),
        });
        assert_eq!(ask(&server.host, &logins(&server.host)).await, Answer::Present(None));
        let expected = [
            "head /v2/a/b/manifests/1 -",
            "get /token?service=s%20v&scope=repository:a/b:pull basic dtpw",
            "head /v2/a/b/manifests/1 bearer t",
        ];
        assert_eq!(server.requests(), expected);
    }

    #[tokio::test]
    async fn other_host_gets_no_credential() {
        let other =
            Server::start(|_, _| reply("401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n", ""));
        let to = other.host.clone();
        let server = Server::start(move |head, _| match head {
            head if head.contains("authorization:") => {
                reply("307 Temporary Redirect", &format!("Location: http://{to}/x\r\n"), "")
            }
            _ => reply("401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n", ""),
        });
        let answer = ask(&server.host, &logins(&server.host)).await;
        assert_eq!(answer, Answer::Denied("it requires a user name and a password".to_string()));
        assert_eq!(other.requests(), ["head /x -"]);
        assert_eq!(server.requests().len(), 2);
    }

    #[tokio::test]
    async fn refused_head_is_repeated_and_reasons_contain_no_message() {
        let server = Server::start(|head, _| match head {
            head if head.starts_with("head") => reply("405 Method Not Allowed", "", ""),
            _ => reply(
                "404 Not Found",
                "",
                "{\"errors\": [{\"code\": \"NAME_UNKNOWN\", \"message\": \"canary\"}]}",
            ),
        });
        assert_eq!(
            ask(&server.host, &[]).await,
            Answer::Missing("HTTP status 404, NAME_UNKNOWN".to_string())
        );
        let page = Server::start(|_, _| reply("200 OK", "Content-Type: text/html\r\n", ""));
        assert!(matches!(ask(&page.host, &[]).await, Answer::Unknown(_)));
        let busy = Server::start(|_, _| reply("429 Too Many Requests", "", ""));
        assert_eq!(ask(&busy.host, &[]).await, Answer::Unknown("HTTP status 429".to_string()));
    }

    #[test]
    fn servers_can_name_only_https_urls() {
        let of =
            |from: &str, location: &str| target(&from.parse().unwrap(), location).map(|url| url.to_string());
        let registry = "https://quay.io/v2/a/manifests/1";
        assert_eq!(of(registry, "https://auth.quay.io/token").as_deref(), Some("https://auth.quay.io/token"));
        assert_eq!(of(registry, "/v2/b").as_deref(), Some("https://quay.io/v2/b"));
        for location in [
            "http://quay.io/token",
            "http://127.0.0.1/token",
            "https://localhost/token",
            "//evil.example.com/",
            "https://u:p@quay.io/",
            "ftp://quay.io/",
            "",
        ] {
            assert_eq!(of(registry, location), None, "{location}");
        }
        let local = "http://127.0.0.1:5000/v2/a/manifests/1";
        assert_eq!(of(local, "http://127.0.0.1:5001/token").as_deref(), Some("http://127.0.0.1:5001/token"));
    }
}
