//! Names that the operator gives up: the cutover or its rollback continues and ends without them, and their records stay as they
//! are.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};

use super::cutover::{Cutover, Name};
use super::provider::Provider;
use crate::nameserver::{AT_ONCE, RecordKind, canonical, described_with_ttls};
use crate::operation::{Ambient as _, SystemAmbient, Waiver};
use crate::session::Failure;
use crate::words::and_more;

/// Maximum number of names that one message or one command contains.
pub(super) const MOST_NAMED: usize = 50;

/// Returns the planned names with these texts, each once. Fails if the plan does not contain one of them.
pub(super) fn planned<'w>(work: &'w Cutover, given: &[String]) -> Result<Vec<&'w Name>, Failure> {
    let given: BTreeSet<String> = given.iter().map(|text| canonical(text)).collect();
    let find = |text: &String| {
        work.names.iter().find(|name| canonical(&name.name) == *text).ok_or_else(|| {
            let names = work.names.iter().take(MOST_NAMED).map(|name| format!("`{}`", name.name));
            let names = names.collect::<Vec<_>>().join(", ");
            let more = and_more(work.names.len().saturating_sub(MOST_NAMED));
            Failure::usage(format!("the plan of this cutover has no name `{text}`"))
                .hint(format!("its names: {names}{more}"))
        })
    };
    given.iter().map(find).collect()
}

/// Returns the waivers of names, with the records that the provider returns now.
pub(super) async fn waivers(provider: &dyn Provider, names: &[&Name], back: bool) -> Vec<Waiver> {
    provider.refresh().await;
    let now = SystemAmbient.now();
    let mut asked = Vec::with_capacity(names.len());
    for name in names {
        // Another client can have replaced addresses with an alias, and vice versa.
        let kinds: BTreeSet<RecordKind> =
            name.kinds().into_iter().chain([RecordKind::A, RecordKind::Aaaa, RecordKind::Cname]).collect();
        let kinds: Vec<RecordKind> = kinds.into_iter().collect();
        asked.push(async move {
            let observed = match provider.read(&name.name, &kinds).await {
                Ok(sets) => described_with_ttls(&sets),
                Err(fault) => format!("not read: {fault}"),
            };
            Waiver::of(&name.name, back, &observed, now)
        });
    }
    stream::iter(asked).buffered(AT_ONCE).collect().await
}
