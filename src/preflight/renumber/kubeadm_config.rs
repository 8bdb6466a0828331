//! `kubeadm-config`: whether the Service range in kubeadm's ConfigMap is the range that etcd records for the API servers.

use std::collections::BTreeSet;

use super::Renumber;
use crate::inventory::unread;
use crate::ip::{ServiceCidr, as_flag};
use crate::preflight::{Check, Judged, Read, Source};
use crate::renumber::plan::flag as recorded_flag;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "kubeadm-config",
    why: "`kubeadm upgrade` sets the API servers' Service range from this ConfigMap",
    needs: &[Source::Etcd],
    judge: |input| Box::pin(read(input)),
};

/// Compares `networking.serviceSubnet` with the Service range of the API servers. etcd records this range.
async fn read(input: &Renumber) -> Read<Judged> {
    let survey = input.survey().await?;
    let key = survey.layout.kubeadm_config();
    if let Some(unreadable) = survey.unreadable.iter().find(|one| one.key == key) {
        return Err(unread(format!("`{key}`: {}", unreadable.reason)).into());
    }
    let subnets = survey.kubeadm.as_ref().map(|kubeadm| kubeadm.service_subnets.as_slice());
    Ok(judge(subnets, &recorded_flag(survey)))
}

/// Compares `networking.serviceSubnet` with the current flag of the API servers. `subnets`: `None` if kubeadm's ConfigMap does
/// not exist.
fn judge(subnets: Option<&[String]>, flag: &[ServiceCidr]) -> Judged {
    let Some(subnets) = subnets else { return Judged::pass("not a kubeadm cluster") };
    if subnets.is_empty() {
        return Judged::warn(
            "`networking.serviceSubnet` is missing, so kubeadm uses its default",
            format!(
                "`kubectl -n kube-system edit configmap kubeadm-config`: set `networking.serviceSubnet` to `{}`",
                as_flag(flag)
            ),
        );
    }
    let parsed: BTreeSet<Option<ServiceCidr>> = subnets.iter().map(|text| text.parse().ok()).collect();
    if parsed == flag.iter().copied().map(Some).collect() {
        return Judged::pass(format!("`{}`, the same as on the API servers", as_flag(flag)));
    }
    Judged::fail(
        format!("kubeadm-config has `{}`, the API servers have `{}`", subnets.join(","), as_flag(flag)),
        format!(
            "`kubectl -n kube-system edit configmap kubeadm-config`: set `networking.serviceSubnet` to `{}`",
            as_flag(flag)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn kubeadm_subnet_must_match_the_flag() {
        let flag: Vec<ServiceCidr> = ["10.96.0.0/16", "fd00::/112"].map(|text| text.parse().unwrap()).into();
        let judged = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            judge(Some(&texts), &flag).verdict
        };
        assert_eq!(judged(&["fd00::/112", "10.96.0.0/16"]), Verdict::Pass);
        assert_eq!(judged(&["10.96.0.0/12", "fd00::/112"]), Verdict::Fail);
        assert_eq!(judged(&["10.96.0.0/16"]), Verdict::Fail);
        assert_eq!(judged(&["x"]), Verdict::Fail);
        assert_eq!(judged(&[]), Verdict::Warn);
        assert_eq!(judge(None, &flag).verdict, Verdict::Pass);
    }
}
