//! Texts and findings about certificates.

use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::certs::Certificate;
use crate::cli::findings;
use crate::cli::output::{Output, counted};
use crate::ip::ServiceCidr;
use crate::survey::Finding;

/// Returns the findings about the validity of a certificate.
pub(super) fn wrong_time(
    certificate: &Certificate,
    subject: &str,
    within: u16,
    now: OffsetDateTime,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let (left, until) = (certificate.left(now), date(certificate.not_after));
    if left.is_negative() {
        let finding = Finding::error("certificate-expired", subject.to_string());
        found.push(finding.says(format!("it has expired: it was valid until {until}")));
    } else if left < Duration::days(within.into()) {
        let finding = Finding::warning("certificate-expires", subject.to_string());
        found.push(finding.says(format!("it expires in {}: it is valid until {until}", days(left))));
    }
    if certificate.not_before > now {
        let finding = Finding::error("certificate-not-yet-valid", subject.to_string());
        found.push(finding.says(format!("it is not valid before {}", date(certificate.not_before))));
    }
    found
}

/// Returns a finding for each range whose first address the certificate does not cover. `default/kubernetes` has the first
/// address of its range.
pub(super) fn lacking(certificate: &Certificate, subject: &str, ranges: &[ServiceCidr]) -> Vec<Finding> {
    let mut found = Vec::new();
    for range in ranges {
        let Some(first) = range.first().filter(|first| !certificate.covers(*first)) else { continue };
        let finding = Finding::error("certificate-lacks-address", subject.to_string());
        found.push(finding.says(format!("it does not cover `{first}`, the first address of `{range}`")));
    }
    found
}

pub(super) fn date(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

pub(super) fn days(left: Duration) -> String {
    counted(usize::try_from(left.whole_days()).unwrap_or_default(), "day", "days")
}

/// Returns the kind of key, the purposes and the usages of a certificate as text.
pub(super) fn described(certificate: &Certificate) -> String {
    let authority = if certificate.is_ca { "certificate authority" } else { "" };
    let (key, purposes, usages) =
        (certificate.key.to_string(), certificate.purposes.join(", "), certificate.usages.join(", "));
    let version = match certificate.version {
        3 => String::new(),
        version => format!("X.509 version {version}"),
    };
    let mut parts = vec![key.as_str(), &version, authority, &purposes, &usages];
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

/// Returns the findings as lines of text, followed by the remedies, one for each code.
pub(super) fn lines(output: &Output, all: &[Finding]) -> Vec<String> {
    let remedies = findings::remedies(all);
    all.iter()
        .map(|finding| line(output, finding))
        .chain(remedies.into_iter().map(|text| format!("  {text}")))
        .collect()
}

/// Returns a finding as one line of text.
pub(super) fn line(output: &Output, finding: &Finding) -> String {
    let severity = findings::severity(output, finding);
    format!("{severity} {}: {}: {}", finding.code, finding.subject, finding.message)
}
