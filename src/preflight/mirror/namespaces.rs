//! `namespaces`: whether the namespaces exist in the source, and which of their objects already exist on the mirror.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Mirror;
use crate::inventory::kinds::CopiedKind;
use crate::inventory::namespaces::{copied_objects, place};
use crate::kube_api::accessors::name;
use crate::preflight::secrets_role::without_secrets;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "namespaces",
    why: "a missing namespace is not copied, and objects that exist on the mirror already are not changed",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let (names, cluster) = (input.source.names().await?, input.target.cluster()?);
    let missing: Vec<String> =
        input.source.named.iter().filter(|name| !names.contains(name)).cloned().collect();
    let there = input.target.objects::<Namespace>().await?;
    let both = there.iter().map(|one| name(one).to_string()).filter(|name| names.contains(name));
    let there = copied_objects(cluster, &both.collect::<Vec<_>>(), true).await?;
    let on_mirror: BTreeSet<_> = there.objects.iter().map(told).collect();
    let copied = input.source.copied().await?;
    let taken = copied.objects.iter().map(told).filter(|one| on_mirror.contains(one));
    let judged = judge(&names, &missing, &taken.collect::<Vec<_>>());
    let is_partial = there.is_without_secrets || copied.is_without_secrets;
    Ok(if is_partial { without_secrets(judged) } else { judged })
}

/// Returns the kind, the namespace and the name of an object, as text.
fn told((copied, object): &(CopiedKind, ObjectMeta)) -> String {
    let (namespace, name) = place(object);
    format!("{} `{namespace}/{name}`", copied.kind.1)
}

/// Checks the mirrored namespaces. `chosen`: namespaces that exist in the source. `missing`: named namespaces that do not exist
/// in the source. `there`: objects that the mirror has already, as text.
fn judge(chosen: &[String], missing: &[String], there: &[String]) -> Judged {
    let names: Vec<String> = chosen.iter().map(|name| format!("`{name}`")).collect();
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        return Judged::fail(
            format!("not in the source: {}", missing.join(", ")),
            "give namespaces that exist in the source (`kubectl get namespaces`): `--namespace`",
        );
    }
    if !there.is_empty() {
        return Judged::warn(
            format!(
                "{} on the mirror already: {}",
                counted(there.len(), "object is", "objects are"),
                first_few(there)
            ),
            "find out who owns these objects; then delete them, adopt them (`netsurgeon mirror plan --existing adopt`), or accept that they differ from the source; objects of an earlier copy are listed as well",
        );
    }
    Judged::pass(format!(
        "the mirror has none of the objects; {} to mirror: {}",
        counted(chosen.len(), "namespace", "namespaces"),
        first_few(&names)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn namespaces_must_be_in_the_source_and_empty_on_the_mirror() {
        let shop = ["shop".to_string()];
        assert_eq!(
            judge(&shop, &[], &[]).observed,
            "the mirror has none of the objects; 1 namespace to mirror: `shop`"
        );
        assert_eq!(judge(&shop, &["till".into()], &[]).observed, "not in the source: `till`");
        let there = judge(&shop, &[], &["Service `shop/web`".into()]);
        assert_eq!(
            (there.verdict, there.observed.as_str()),
            (Verdict::Warn, "1 object is on the mirror already: Service `shop/web`")
        );
    }
}
