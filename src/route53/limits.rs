//! Limits for the answers of Route 53. A server at the configured endpoint can send answers without an end. The SDK reads each
//! answer completely before it parses the answer.

use std::time::Duration;

use tokio::time::timeout;

use super::{Result, Route53Error};
use crate::nameserver::RecordSet;

/// Maximum memory for the record sets of a zone, in bytes. The same limit applies to zone transfers.
const MOST: usize = 64 << 20;

/// Time limit for all pages of a list. A zone of 10,000 record sets has 34 pages, and Route 53 allows five requests per second for
/// an account.
const LIST: Duration = Duration::from_mins(5);

/// Limits the time of a list with several pages.
pub(super) async fn in_time<T>(what: &str, pages: impl Future<Output = Result<T>>) -> Result<T> {
    let reason = format!("the list has no end after {} s", LIST.as_secs());
    timeout(LIST, pages).await.unwrap_or_else(|_| Err(Route53Error::Lost { what: what.to_string(), reason }))
}

/// The memory that a list still may use.
pub(super) struct Space(usize);

impl Space {
    pub fn new() -> Self {
        Self(MOST)
    }

    /// Takes the memory for a record set. Fails if the list is too large.
    pub fn take(&mut self, set: &RecordSet) -> Result<()> {
        self.0 = self.0.checked_sub(set.size()).ok_or(Route53Error::TooLarge)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use aws_config::BehaviorVersion;
    use aws_config::retry::RetryConfig;
    use aws_credential_types::Credentials;
    use aws_sdk_route53::config::Region;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::Route53;

    /// A server that sends such a body for each request, again and again while the client reads. With `length`, the body has an
    /// end.
    async fn server(body: String, length: Option<usize>) -> Route53 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let body = body.clone();
                tokio::spawn(async move {
                    let mut asked = vec![0; 8192];
                    while stream.read(&mut asked).await.is_ok_and(|count| count > 0) {
                        let head =
                            length.map(|length| format!("content-length: {length}\r\n")).unwrap_or_default();
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\n{head}\r\n");
                        let mut sent = stream.write_all(format!("{head}{body}").as_bytes()).await;
                        while length.is_none() && sent.is_ok() {
                            sent = stream.write_all(body.as_bytes()).await;
                        }
                    }
                });
            }
        });
        let config = aws_config::SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(endpoint)
            .retry_config(RetryConfig::disabled())
            .credentials_provider(aws_sdk_route53::config::SharedCredentialsProvider::new(Credentials::new(
                "a", "b", None, None, "test",
            )))
            .build();
        Route53::of(&config)
    }

    fn page(sets: usize, value: &str) -> String {
        let set = format!(
            "<ResourceRecordSet><Name>a.example.com.</Name><Type>TXT</Type><TTL>60</TTL><ResourceRecords>\
             <ResourceRecord><Value>{value}</Value></ResourceRecord></ResourceRecords></ResourceRecordSet>"
        );
        format!(
            "<ListResourceRecordSetsResponse><ResourceRecordSets>{}</ResourceRecordSets><IsTruncated>true</IsTruncated>\
             <NextRecordName>a.example.com.</NextRecordName><NextRecordType>TXT</NextRecordType><MaxItems>300</MaxItems>\
             </ListResourceRecordSetsResponse>",
            set.repeat(sets)
        )
    }

    #[tokio::test]
    async fn endless_list_is_aborted() {
        let page = page(300, &"x".repeat(10_000));
        let api = server(page.clone(), Some(page.len())).await;
        let expected = "the zone takes more than 64 MiB";
        for error in
            [api.list("Z1").await.unwrap_err(), api.sets_of("Z1", "a.example.com").await.unwrap_err()]
        {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn endless_answer_is_not_read_to_its_end() {
        let api = server(page(1, &"x".repeat(100_000)), None).await;
        let error = api.list("Z1").await.unwrap_err().to_string();
        assert!(error.contains("length limit exceeded"), "{error}");
    }
}
