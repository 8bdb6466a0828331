//! `planned-objects`: what `netsurgeon mirror plan` would do with each object, with the same reader and the same rules: which objects
//! the mirror's API server refuses, and which ones exist there already.

use super::Mirror;
use crate::inventory::{ReadError, unread_by};
use crate::kube_api::{Cluster, ReadOnly};
use crate::mirror::activation::MovedCopies;
use crate::mirror::activation::ledger::in_force;
use crate::mirror::config::Config;
use crate::mirror::ledger::created;
use crate::mirror::namespace_choice::is_copied;
use crate::mirror::reader::{EqualOwners, MirrorOptions, MirrorReader};
use crate::mirror::{self, DryRun, Entry, Planned};
use crate::operation::Plan;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::session::Failure;
use crate::words::counted;

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "planned-objects",
    why: "an object that the mirror refuses, or that exists there already, is missing in the copy",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let clusters = (input.source.reader.cluster()?, input.target.cluster()?);
    let mut namespaces = input.source.names().await?;
    namespaces.retain(|name| is_copied(name));
    match plan(clusters, namespaces, input.config.clone()).await.map_err(|failure| unread_by(&failure)) {
        Ok(plan) => Ok(judge(&plan)),
        Err(error) if error.denied.is_some() => Ok(not_permitted(&error)),
        Err(error) => Err(error.into()),
    }
}

async fn plan(
    (source, mirror): (&Cluster, &Cluster),
    namespaces: Vec<String>,
    config: Config,
) -> Result<Plan<mirror::Mirror>, Failure> {
    let ((ours, _), moved) = (created(mirror).await?, MovedCopies::new(&in_force(mirror).await?));
    // The check `outside-owners` finds them.
    let equal_owners = EqualOwners::Allow;
    let options = MirrorOptions { namespaces, ours, moved, config, equal_owners, ..MirrorOptions::default() };
    MirrorReader::new(ReadOnly::new(source.clone()), ReadOnly::new(mirror.clone()), options).plan().await
}

/// Returns the result if the user must not make a plan.
fn not_permitted(error: &ReadError) -> Judged {
    Judged::warn(
        format!("no plan could be made: {}", error.observed),
        "run this check as the user who copies the objects: with the roles `netsurgeon-mirror-source` and `netsurgeon-mirror-secrets` in \
         the source and `netsurgeon-mirror-write` in the mirror; or skip it: `--skip planned-objects`",
    )
}

/// Judges a plan.
fn judge(plan: &Plan<mirror::Mirror>) -> Judged {
    let work = &plan.work;
    let told = |entry: &Entry| {
        let detail = entry.detail.as_deref().unwrap_or_default();
        format!("{} ({})", entry.object, detail.trim_end_matches('.'))
    };
    let of = |is_wanted: &dyn Fn(&Entry) -> bool| -> Vec<String> {
        work.objects.iter().filter(|entry| is_wanted(entry)).map(told).collect()
    };
    let refused = of(&|entry| entry.dry_run == Some(DryRun::Refused));
    let conflicts = of(&|entry| entry.action == Planned::Conflict);
    let faulty = of(&|entry| entry.reason.as_deref() == Some(mirror::RULE_FAILED));
    let groups =
        [("refused by the mirror", refused), ("in conflict", conflicts), ("changed by no rule", faulty)];
    let is_refused = groups.first().is_some_and(|(_, refused)| !refused.is_empty());
    let mut parts: Vec<String> = groups
        .iter()
        .filter(|(_, found)| !found.is_empty())
        .map(|(what, found)| {
            format!("{} {what}: {}", counted(found.len(), "object is", "objects are"), first_few(found))
        })
        .collect();
    if !work.warnings.is_empty() {
        parts.push(format!("warnings: {}", first_few(&work.warnings)));
    }
    let remedy = "`netsurgeon mirror plan` with the same options shows every object with its reason";
    match parts.is_empty() {
        _ if is_refused => Judged::fail(parts.join("; "), remedy),
        false => Judged::warn(parts.join("; "), remedy),
        true => {
            let copied = work.objects.iter().filter(|entry| entry.action.is_copied()).count();
            let copied = counted(copied, "object can be copied", "objects can be copied");
            Judged::pass(match work.dry_runs(DryRun::Unchecked) {
                0 => copied,
                unchecked => format!(
                    "{copied}; the mirror cannot check {} yet, because their namespace, kind or role does not exist there",
                    counted(unchecked, "change", "changes")
                ),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::preflight::Verdict;
    use crate::store::Revision;

    fn judged(action: &str, more: &Value, warnings: &Value) -> Judged {
        let mut entry = json!({"resource": "/configmaps", "api_version": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "a",
            "uid": "1", "action": action});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let work = json!({"source": "s", "namespaces": ["shop"], "objects": [entry], "kinds_left_out": [], "warnings": warnings});
        judge(&Plan::new("m", Revision(0), serde_json::from_value(work).unwrap()))
    }

    #[test]
    fn refused_objects_fail_and_conflicts_warn() {
        let of = |action: &str, more: Value| {
            let judged = judged(action, &more, &json!([]));
            (judged.verdict, judged.observed)
        };
        assert_eq!(
            of("create", json!({"dry_run": "accepted"})),
            (Verdict::Pass, "1 object can be copied".to_string())
        );
        let (verdict, observed) = of("create", json!({"dry_run": "unchecked"}));
        assert!(verdict == Verdict::Pass && observed.contains("cannot check 1 change yet"), "{observed}");
        let refused = of("create", json!({"dry_run": "refused", "detail": "exceeded quota"}));
        let expected = "1 object is refused by the mirror: ConfigMap shop/a (exceeded quota)".to_string();
        assert_eq!(refused, (Verdict::Fail, expected));
        let (verdict, observed) =
            of("conflict", json!({"reason": "exists", "detail": "the mirror has another"}));
        assert_eq!(
            (verdict, observed.as_str()),
            (Verdict::Warn, "1 object is in conflict: ConfigMap shop/a (the mirror has another)")
        );
        let (verdict, observed) = of("left-out", json!({"reason": "rule-failed", "detail": "no such path"}));
        assert_eq!((verdict, observed.contains("no such path")), (Verdict::Warn, true));
        let warned = judged("same", &json!({}), &json!(["images: rule 2 matches nothing"]));
        assert_eq!(warned.verdict, Verdict::Warn);
    }
}
