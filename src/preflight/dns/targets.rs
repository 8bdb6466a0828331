//! `targets`: whether the mirror has an object and an address for every name.

use super::{Dns, Entry};
use crate::preflight::facts::exposed::{Exposed, covers};
use crate::preflight::{Check, Judged, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<Dns> = Check {
    name: "targets",
    why: "a name cannot point to the mirror before the mirror has an address for it",
    judge: |dns| Box::pin(async { Ok(judge(dns.entries().await?, dns.on_the_mirror().await?)) }),
};

/// Checks whether the mirror has an object and an address for every name.
fn judge(entries: &[Entry], mirror: &[Exposed]) -> Judged {
    let (mut missing, mut without) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut serving = mirror.iter().filter(|one| covers(&one.name, &entry.name)).peekable();
        match serving.peek() {
            None => missing.push(format!("`{}`", entry.name)),
            Some(first) => {
                let first = format!("`{}` ({})", entry.name, first.by);
                if serving.all(|one| one.at.is_empty()) {
                    without.push(first);
                }
            }
        }
    }
    if !missing.is_empty() {
        return Judged::fail(
            format!("the mirror has no object for {}", first_few(&missing)),
            "first copy the objects with these hosts to the mirror",
        );
    }
    if !without.is_empty() {
        return Judged::fail(
            format!("no address on the mirror: {}", first_few(&without)),
            "find out why the object on the mirror has no load balancer: run `kubectl describe`, and check the log of the controller",
        );
    }
    Judged::pass(format!("the mirror has an address for {}", all_of(entries.len(), "name", "names")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::dns::testing::www;

    #[test]
    fn mirror_must_serve_every_name() {
        let exposed = |name: &str, at: &[&str]| Exposed {
            name: name.into(),
            by: "Ingress `shop/web`".into(),
            has_tls: true,
            at: std::sync::Arc::new(at.iter().map(ToString::to_string).collect()),
            source: None,
        };
        assert_eq!(judge(&[www()], &[exposed("*.example.com", &["192.0.2.9"])]).verdict, Verdict::Pass);
        assert_eq!(judge(&[www()], &[]).observed, "the mirror has no object for `www.example.com`");
        let without = judge(&[www()], &[exposed("www.example.com", &[])]);
        assert_eq!(without.observed, "no address on the mirror: `www.example.com` (Ingress `shop/web`)");
    }
}
