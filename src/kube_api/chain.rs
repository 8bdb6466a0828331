//! Formats errors of the API client without the secrets that they can contain.

use kube::client::AuthError;

use crate::words::with_causes;

/// Formats an error and its causes, without repeated texts. If the text could contain a secret, returns a fixed message instead.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    if let Some(text) = causes.find_map(without_secrets) {
        return text;
    }
    with_causes(error)
}

/// Returns a fixed message for an error if its text can contain a secret. The secret can be in the output of an exec plugin (a
/// token), in the plugin's environment, or in a proxy's URL (a password).
fn without_secrets(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let text = match (error.downcast_ref::<AuthError>(), error.downcast_ref::<kube::Error>()) {
        (Some(AuthError::AuthExecRun { out, .. }), _) => {
            return Some(format!("auth error: the exec plugin of the kubeconfig failed: {}", out.status));
        }
        (Some(AuthError::AuthExecParse(_)), _) => {
            "auth error: the exec plugin of the kubeconfig did not print an ExecCredential"
        }
        (
            _,
            Some(kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. }),
        ) => "its `proxy-url` must start with `http://` or `socks5://`",
        _ => return None,
    };
    Some(text.to_string())
}
