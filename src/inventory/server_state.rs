//! Reads the state, the version and the time of each API server.

use time::OffsetDateTime;

use crate::kube_api::{ApiServer, Cluster};

/// An API server with its version and clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Address of the API server.
    pub at: String,
    /// Version of the API server, or why the server is not ready.
    pub version: Result<String, String>,
    /// Smallest possible difference between the clock of the server and the clock of this host, in milliseconds. Positive if the
    /// server is ahead; `None` if the server reported no time.
    pub skew: Option<i64>,
}

/// Reads the state of an API server.
pub async fn inspect(cluster: &Cluster, server: ApiServer) -> ServerState {
    let at = server.to_string();
    let client = match cluster.dial(server).await {
        Ok(client) => client,
        Err(error) => return ServerState { at, version: Err(error.to_string()), skew: None },
    };
    let version = match client.ready().await {
        Ok(()) => client.version().await.map(|version| version.git).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let before = milliseconds(OffsetDateTime::now_utc());
    let said = client.time().await;
    let after = milliseconds(OffsetDateTime::now_utc());
    ServerState { at, version, skew: said.map(|said| skew(before, milliseconds(said), after)) }
}

fn milliseconds(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos().checked_div(1_000_000).unwrap_or_default()).unwrap_or_default()
}

/// Returns the smallest possible difference between a server's clock and the clock of this host, in milliseconds. The server
/// reported a whole second (`said`) between the times `before` and `after` of this host.
fn skew(before: i64, said: i64, after: i64) -> i64 {
    let latest = said.saturating_add(999);
    if said > after {
        said.saturating_sub(after)
    } else if latest < before {
        latest.saturating_sub(before)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_allows_for_whole_seconds() {
        assert_eq!(skew(10_500, 10_000, 10_600), 0);
        assert_eq!(skew(10_999, 10_000, 11_200), 0);
        assert_eq!(skew(10_500, 13_000, 10_600), 2400);
        assert_eq!(skew(10_500, 8_000, 10_600), -1501);
    }
}
