//! Regions of AWS, their partitions and endpoints.

use std::fmt;

/// A region, for example `eu-west-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(String);

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Region {
    /// Returns the region with this name.
    pub fn new(name: &str) -> Self {
        Self(name.to_string())
    }

    /// Returns the region of an availability zone, a local zone or a wavelength zone: `us-west-2` for `us-west-2a` and `us-west-2-lax-1a`.
    /// Returns `None` if the text has another form: the name becomes a part of host names.
    pub fn of_zone(zone: &str) -> Option<Self> {
        let mut words = Vec::new();
        for word in zone.split('-') {
            let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
            if !digits.is_empty() {
                words.push(digits);
                return ((3..=4).contains(&words.len())).then(|| Self(words.join("-")));
            }
            let is_letters = !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase());
            is_letters.then(|| words.push(word.to_string()))?;
        }
        None
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the domain of endpoints, for example `amazonaws.com` (botocore, `endpoints.json`).
    pub(super) fn domain(&self) -> &'static str {
        if self.0.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
    }

    /// Returns the region for the signatures of IAM, which has one endpoint for all regions of a partition.
    pub(super) fn of_iam(&self) -> &'static str {
        match self.0.as_str() {
            name if name.starts_with("cn-") => "cn-north-1",
            name if name.starts_with("us-gov-") => "us-gov-west-1",
            _ => "us-east-1",
        }
    }

    /// Returns the host of IAM.
    pub(super) fn iam_host(&self) -> &'static str {
        match self.of_iam() {
            "cn-north-1" => "iam.cn-north-1.amazonaws.com.cn",
            "us-gov-west-1" => "iam.us-gov.amazonaws.com",
            _ => "iam.amazonaws.com",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_a_region() {
        let of = |zone| Region::of_zone(zone).map(|region| region.0);
        assert_eq!(of("eu-west-1a").as_deref(), Some("eu-west-1"));
        assert_eq!(of("us-gov-west-1b").as_deref(), Some("us-gov-west-1"));
        assert_eq!(of("us-west-2-lax-1a").as_deref(), Some("us-west-2"));
        assert_eq!(of("us-east-1-wl1-bos-wlz-1").as_deref(), Some("us-east-1"));
        assert_eq!(of("europe"), None);
        assert_eq!(of("a-b.attacker.example#-1a"), None);
        assert_eq!(of("a-b-"), None);
        assert_eq!(of("1a"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn iam_has_one_endpoint_in_a_partition() {
        assert_eq!(Region::new("eu-west-1").iam_host(), "iam.amazonaws.com");
        assert_eq!(Region::new("cn-northwest-1").iam_host(), "iam.cn-north-1.amazonaws.com.cn");
        assert_eq!(Region::new("us-gov-east-1").of_iam(), "us-gov-west-1");
    }
}
