//! `overlaps`: whether Pods or hosts use addresses of the new range. The plan checks the other uses of this range.

use super::Renumber;
use crate::controlplane::CONTROLLER_MANAGER;
use crate::inventory::{Route, own_routes};
use crate::ip::ServiceCidr;
use crate::preflight::{Check, Judged, Read, Source, first_few};

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "overlaps",
    why: "hosts that use addresses of the new range become unreachable",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Checks uses of the new range that the plan does not check: Pod ranges of controller managers, and routes of this host.
async fn read(input: &Renumber) -> Read<Judged> {
    let to = &input.options.to;
    let pods = input.read.ranges_told(CONTROLLER_MANAGER, "cluster-cidr").await?;
    let mut services = input.survey().await?.service_ranges();
    services.retain(|range| range != to);
    Ok(judge(to, &services, &pods, &own_routes()?))
}

/// Checks for other uses of the new range. `old`: ranges from which Services move. `pods`: ranges for Pods, each with its source.
/// `routes`: routes of this host. The check ignores a route that covers both the old and the new range, such as the default
/// route.
fn judge(to: &ServiceCidr, old: &[ServiceCidr], pods: &[(String, ServiceCidr)], routes: &[Route]) -> Judged {
    if let Some((who, range)) = pods.iter().find(|(_, range)| range.overlaps(to)) {
        return Judged::fail(format!("Pods get addresses from `{range}` ({who})"), "choose another range");
    }
    let is_new = |route: &&Route| {
        let is_wider = route.range.prefix_len() < to.prefix_len();
        let is_of_services = old.iter().any(|old| old.covers(&route.range));
        route.range.overlaps(to)
            && !is_of_services
            && !(is_wider && old.iter().any(|old| route.range.overlaps(old)))
    };
    let found: Vec<&Route> = routes.iter().filter(is_new).collect();
    let words = |route: &&Route| format!("`{}` on `{}`", route.range, route.device);
    let seen = first_few(&found.iter().map(words).collect::<Vec<_>>());
    if found.iter().any(|route| route.range.prefix_len() >= to.prefix_len()) {
        return Judged::fail(
            format!("this host has a route into the new range: {seen}"),
            "choose another range, or stop the use of those addresses",
        );
    }
    if !found.is_empty() {
        return Judged::warn(
            format!("this host has a route that covers the new range, but not the old range: {seen}"),
            "make sure that no host behind this route uses an address of the new range: nodes will not reach that host",
        );
    }
    Judged::pass("no other use of the new range was found")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn routes_and_pods_must_not_use_the_new_range() {
        let range = |text: &str| -> ServiceCidr { text.parse().unwrap() };
        let (to, old) = (range("10.200.0.0/16"), [range("10.96.0.0/16")]);
        let by = |text: &str| {
            judge(&to, &old, &[], &[Route { range: range(text), device: "eth0".into() }]).verdict
        };
        assert_eq!(by("10.200.3.0/24"), Verdict::Fail);
        assert_eq!(by("10.200.0.0/16"), Verdict::Fail);
        assert_eq!(by("10.192.0.0/10"), Verdict::Warn, "it covers the new range, and not the old one");
        assert_eq!(by("10.0.0.0/8"), Verdict::Pass, "it covers both ranges");
        assert_eq!(by("192.0.2.0/24"), Verdict::Pass);
        let grown = range("10.96.0.0/12");
        let route = [Route { range: range("10.96.0.0/16"), device: "eth1".into() }];
        assert_eq!(judge(&grown, &old, &[], &route).verdict, Verdict::Pass, "the route of the Services");
        let pods = [("`--cluster-cidr`".to_string(), range("10.200.128.0/17"))];
        assert_eq!(judge(&to, &old, &pods, &[]).verdict, Verdict::Fail);
    }
}
