//! The digest of a plan that a user approves.

use crate::session::Failure;

/// Minimum length of an approved digest. Fewer digits could match several plans.
const FEWEST_DIGITS: usize = 8;

/// Parses the digest of a plan, or its first digits.
pub(super) fn parse(text: &str) -> Result<String, String> {
    let digits = text.trim().to_lowercase();
    if digits.len() < FEWEST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!(
            "give the digest that the plan shows, or its first {FEWEST_DIGITS} digits or more"
        ));
    }
    Ok(digits)
}

/// Fails if the digest of a plan is not the approved digest.
pub(super) fn refuse_other(digest: &str, approved: Option<&str>) -> Result<(), Failure> {
    match approved.filter(|approved| !digest.starts_with(*approved)) {
        Some(approved) => {
            let text = format!("the plan has digest `{digest}`, not the approved digest `{approved}`");
            Err(Failure::refused(text).hint("review the plan, and approve its digest"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_needs_at_least_eight_digits() {
        assert_eq!(parse("14266D7F").as_deref(), Ok("14266d7f"));
        for text in ["14266d7", "", "14266d7f...", "14266d7g"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_approved_digest_is_accepted() {
        assert!(
            refuse_other("14266d7f00", None).is_ok() && refuse_other("14266d7f00", Some("14266d7f")).is_ok()
        );
        assert!(refuse_other("14266d7f00", Some("24266d7f")).is_err());
    }
}
