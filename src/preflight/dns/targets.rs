//! `targets`: whether the mirror has an object and an address for every name.

use crate::dns::reader::{ByName, CutoverReader};
use crate::dns::target;
use crate::inventory::published_hosts::PublishedHost;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "targets",
    why: "a name cannot point to the mirror before the mirror has an address for it",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let mirror = ByName::new(dns.on_the_mirror().await?);
    let mut found = Vec::new();
    for entry in dns.entries().await? {
        let serving = dns.serving(&mirror, entry).await?;
        found.push(Found { name: &entry.name, is_given: entry.is_given, serving });
    }
    Ok(judge(&found))
}

/// A name to change.
struct Found<'e> {
    name: &'e str,
    is_given: bool,
    /// Its objects on the mirror, or the reason why they are unknown.
    serving: Result<Vec<&'e PublishedHost>, String>,
}

impl Found<'_> {
    /// Returns why no object of the mirror can give the name an address. Each user of the mirror can create an object with this
    /// name and with any target.
    fn refusal(&self) -> Option<String> {
        let serving = match &self.serving {
            Ok(serving) => serving,
            Err(why) => return Some(format!("`{}`: {why}", self.name)),
        };
        serving.iter().find_map(|one| {
            let (at, what) = one.at.iter().find_map(|at| Some((at, target::refused(at)?)))?;
            Some(format!("`{}`: the target of {} is {at}, {what}", self.name, one.by))
        })
    }
}

/// Checks whether the mirror has an object and an address for every name.
fn judge(found: &[Found<'_>]) -> Judged {
    let (mut refused, mut missing, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for one in found {
        if let Some(refusal) = one.refusal() {
            refused.push((one.is_given, refusal));
        } else if let Ok(serving) = &one.serving {
            match serving.first() {
                None => missing.push(format!("`{}`", one.name)),
                Some(first) if serving.iter().all(|one| one.at.is_empty()) => {
                    without.push(format!("`{}` ({})", one.name, first.by));
                }
                Some(_) => {}
            }
        }
    }
    let given: Vec<String> =
        refused.iter().filter(|(is_given, _)| *is_given).map(|(_, why)| why.clone()).collect();
    if !given.is_empty() {
        return Judged::fail(first_few(&given), OTHERS);
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
    if !refused.is_empty() {
        let refused: Vec<String> = refused.into_iter().map(|(_, why)| why).collect();
        return Judged::warn(format!("these names do not change: {}", first_few(&refused)), OTHERS);
    }
    Judged::pass(format!("the mirror has an address for {}", all_of(found.len(), "name", "names")))
}

/// What to do about objects of other namespaces, and about targets that cannot be used.
const OTHERS: &str = "the mirror needs the object in the same namespace as here, with the address of its load balancer; correct or delete the other objects \
     with this name; if any object of the mirror is right: `--take NAME`";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn mirror_must_serve_every_name() {
        let exposed = |at: &[&str]| PublishedHost {
            name: "www.example.com".into(),
            by: "Ingress `shop/web`".into(),
            namespace: "shop".into(),
            is_tls_only: false,
            has_tls: true,
            at: std::sync::Arc::new(at.iter().map(ToString::to_string).collect()),
            source: None,
        };
        let of = |serving, is_given| judge(&[Found { name: "www.example.com", is_given, serving }]);
        let (good, bare, bad) = (exposed(&["192.0.2.9"]), exposed(&[]), exposed(&["169.254.169.254"]));
        assert_eq!(of(Ok(vec![&good]), false).verdict, Verdict::Pass);
        assert_eq!(of(Ok(Vec::new()), false).observed, "the mirror has no object for `www.example.com`");
        assert_eq!(
            of(Ok(vec![&bare]), false).observed,
            "no address on the mirror: `www.example.com` (Ingress `shop/web`)"
        );
        for serving in [Ok(vec![&bad]), Err("why".to_string())] {
            assert_eq!(of(serving.clone(), false).verdict, Verdict::Warn, "the other names can change");
            assert_eq!(of(serving, true).verdict, Verdict::Fail);
        }
    }
}
