//! Credentials of AWS, from each source that the SDK reads, and a server that answers as the services behind these sources do. It
//! refuses every request to Route 53.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use super::LOUD;
use super::stage::{Stage, Variables};

/// What the server knows.
#[derive(Clone)]
struct Known {
    /// The token of the metadata service (IMDSv2).
    token: String,
    /// The credentials, as JSON of the metadata service.
    credentials: String,
    /// The same, as XML of the token service (STS).
    assumed: String,
}

/// Runs commands on Route 53 with the credentials of each source.
pub fn commands_with_credentials(stage: &mut Stage) {
    let mut plant = |what: &str| stage.canaries.plant(what);
    let (secret, session) = (plant("a secret key of AWS"), plant("a session token of AWS"));
    let (token, authorization) = (plant("a token of the metadata service"), plant("a token of a container"));
    let identity = plant("a token of a web identity");
    let credentials = json!({
        "Version": 1, "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z", "AccountId": "123456789012",
        "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": secret, "Token": session, "SessionToken": session,
        "Expiration": "2099-01-01T00:00:00Z",
    });
    let assumed = format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKIDEXAMPLE</AccessKeyId>\
         <SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{session}</SessionToken>\
         <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>"
    );
    let known = Known { token, credentials: credentials.to_string(), assumed };
    let url = start(&known);
    let output = stage.give("aws.json", &credentials.to_string());
    let profile = |script: &str| format!("[default]\ncredential_process = sh -c '{script}'\n");
    let process = stage.give("aws.conf", &profile(&format!("cat {output}; cat {output} >&2")));
    let failing = stage.give("aws-fails.conf", &profile(&format!("cat {output} >&2; cat {output}; exit 1")));
    let identity = stage.give("identity", &identity);
    let sources: [Variables; 6] = [
        vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.clone())],
        vec![
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{url}/container")),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", authorization),
        ],
        vec![
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_SESSION_TOKEN", session),
        ],
        vec![("AWS_CONFIG_FILE", process)],
        vec![("AWS_CONFIG_FILE", failing), ("AWS_EC2_METADATA_DISABLED", "true".to_owned())],
        vec![
            ("AWS_WEB_IDENTITY_TOKEN_FILE", identity),
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/mover".to_owned()),
            ("AWS_ENDPOINT_URL_STS", url.clone()),
        ],
    ];
    for mut variables in sources {
        let source = variables[0].0;
        variables.push(("AWS_ENDPOINT_URL_ROUTE_53", url.clone()));
        let words = "preflight dns --provider route53 --zone example.test --name www.example.test --resolver 127.0.0.53 \
                     --only zone-servers --within 10 -vvv";
        let (_, out, err) = stage.run(words, &variables);
        let is_expected = |text: &str| text.contains("AccessDenied") || text.contains("credentials");
        assert!(is_expected(&out) || is_expected(&err), "{source}: {out}\n{err}");
    }
}

/// Runs `mirror parity` on a Node that is an instance, with credentials from variables.
pub async fn parity(stage: &mut Stage, ran: &mut BTreeSet<String>) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "instance"},
        "spec": {"providerID": "aws:///eu-west-1a/i-0123456789abcdef0"},
    });
    stage.cluster.api.create(&node).await;
    let (secret, session) = (stage.canaries.plant("a secret key"), stage.canaries.plant("a session token"));
    let url = start(&Known { token: String::new(), credentials: String::new(), assumed: String::new() });
    let words = format!("mirror parity --mirror-kubeconfig {}", stage.cluster.kubeconfig().display());
    for variant in LOUD {
        let variables = vec![
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.clone()),
            ("AWS_SESSION_TOKEN", session.clone()),
            ("AWS_ENDPOINT_URL", url.clone()),
        ];
        let (_, _, said) = stage.run(&format!("{words} {variant}"), &variables);
        assert!(said.contains("ec2:DescribeInstances"), "{said}");
    }
    ran.insert(words);
    stage.cluster.api.delete("/api/v1/nodes/instance").await;
}

/// Starts the server, and returns its URL.
fn start(known: &Known) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let known = known.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let known = known.clone();
            std::thread::spawn(move || serve(stream, &known));
        }
    });
    url
}

fn serve(stream: TcpStream, known: &Known) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or_default() == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let role = "/latest/meta-data/iam/security-credentials";
        let (status, kind, answer) = match head.split_whitespace().nth(1).unwrap_or_default() {
            "/latest/api/token" => ("200 OK", "text/plain", known.token.clone()),
            path if path.contains(role) && path.ends_with("/mover") => {
                ("200 OK", "application/json", known.credentials.clone())
            }
            path if path.contains(role) => ("200 OK", "text/plain", "mover".to_owned()),
            "/container" => ("200 OK", "application/json", known.credentials.clone()),
            _ if String::from_utf8_lossy(&body).contains("AssumeRole") => {
                ("200 OK", "text/xml", known.assumed.clone())
            }
            _ => {
                let error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
                ("403 Forbidden", "text/xml", error.to_owned())
            }
        };
        let length = answer.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nx-aws-ec2-metadata-token-ttl-seconds: 600\r\ncontent-length: {length}\r\n\r\n{answer}"
        );
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
