//! What a registry demands: the header `WWW-Authenticate` (RFC 9110, section 11.6.1).

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// How a request must be authorized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// With a user name and a password.
    Basic,
    /// With a token from a token server.
    Bearer {
        /// URL of the token server.
        realm: String,
        /// Name of the registry at the token server.
        service: Option<String>,
        /// What the token must allow.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Returns the challenge of an answer. Of several, a token comes first, as in container runtimes.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let found: Vec<Self> = texts.flat_map(parse).collect();
        let bearer = found.iter().find(|one| matches!(one, Self::Bearer { .. }));
        bearer.or(found.first()).cloned()
    }
}

/// Parses the challenges of one header line. Unknown schemes, and tokens without a server, are dropped.
fn parse(text: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = text.trim_start_matches([' ', ',', '\t']);
    while !rest.is_empty() {
        let end = rest.find([' ', ',', '=', '\t']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let after = after.trim_start_matches([' ', '\t']);
        if let Some(value) = after.strip_prefix('=') {
            let (value, after) = parameter(value.trim_start_matches([' ', '\t']));
            if let Some((_, parameters)) = found.last_mut() {
                parameters.push((word.to_ascii_lowercase(), value));
            }
            rest = after;
        } else {
            found.push((word.to_ascii_lowercase(), Vec::new()));
            rest = after;
        }
        rest = rest.trim_start_matches([' ', ',', '\t']);
    }
    let challenge = |(scheme, parameters): (String, Vec<(String, String)>)| {
        let of = |name: &str| {
            parameters
                .iter()
                .find(|(key, value)| key == name && !value.is_empty())
                .map(|(_, value)| value.clone())
        };
        match scheme.as_str() {
            "basic" => Some(Challenge::Basic),
            "bearer" => {
                Some(Challenge::Bearer { realm: of("realm")?, service: of("service"), scope: of("scope") })
            }
            _ => None,
        }
    };
    found.into_iter().filter_map(challenge).collect()
}

/// Returns the value of a parameter, and what follows it.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([',', ' ', '\t']).unwrap_or(text.len()));
        return (value.to_string(), rest);
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, letter) in quoted.char_indices() {
        match letter {
            _ if is_escaped => {
                value.push(letter);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return (value, quoted.get(at.saturating_add(1)..).unwrap_or_default()),
            _ => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(lines: &[&'static str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(line));
        }
        Challenge::of(&headers)
    }

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |text: &str| text.to_string();
        Challenge::Bearer { realm: owned(realm), service: service.map(owned), scope: scope.map(owned) }
    }

    #[test]
    fn challenges_of_registries_are_parsed() {
        let (hub, scope) = ("https://auth.docker.io/token", "repository:a/b:pull,push");
        for (lines, expected) in [
            (
                vec![
                    r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#,
                ],
                Some(bearer(hub, Some("registry.docker.io"), Some(scope))),
            ),
            (
                vec![r#"bearer  Realm = "https://auth.docker.io/token" , error="invalid_token""#],
                Some(bearer(hub, None, None)),
            ),
            (vec!["Bearer realm=https://auth.docker.io/token,service=x"], Some(bearer(hub, Some("x"), None))),
            (vec![r#"Basic realm="a \"quoted\" name, and more""#], Some(Challenge::Basic)),
            (
                vec![r#"Basic realm="a", Bearer realm="https://auth.docker.io/token""#],
                Some(bearer(hub, None, None)),
            ),
            (
                vec!["Basic realm=\"a\"", "Bearer realm=\"https://auth.docker.io/token\""],
                Some(bearer(hub, None, None)),
            ),
            (vec!["BASIC"], Some(Challenge::Basic)),
            (vec!["Negotiate", "Basic realm=\"a\""], Some(Challenge::Basic)),
            (vec!["Bearer service=\"x\""], None),
            (vec!["Bearer realm=\"unclosed"], Some(bearer("unclosed", None, None))),
            (vec![""], None),
            (vec![], None),
        ] {
            assert_eq!(of(&lines), expected, "{lines:?}");
        }
    }
}
