//! Compares the zone as the provider reads it with the zone as clients see it, before a cutover changes anything.
//!
//! A name server can answer from several views (split-horizon DNS). The key selects the view that changes, and the address of a
//! client selects the view that the client sees. If clients see another view, a cutover would change records that no client
//! reads, and then wait for the resolver.

use futures_util::{StreamExt as _, stream};

use super::cutover::{Cutover, Name};
use super::provider::Provider;
use crate::inventory::ZoneService;
use crate::nameserver::{AT_ONCE, Server, are_same, described, is_answer};
use crate::session::Failure;
use crate::words::first_few;

/// Fails if the resolver of the plan does not answer, or if it returns other records than the provider. Ignores names that another
/// client has changed since the plan, because the cutover skips them.
pub(super) async fn refuse_other_view(work: &Cutover, provider: &dyn Provider) -> Result<(), Failure> {
    let resolver = Server::new(work.resolver, None);
    let mut asked = Vec::with_capacity(work.names.len());
    for name in &work.names {
        asked.push(differing(name, provider, &resolver));
    }
    let found: Vec<Result<Option<String>, Failure>> = stream::iter(asked).buffered(AT_ONCE).collect().await;
    let differing: Vec<String> = found.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    if differing.is_empty() {
        return Ok(());
    }
    let at = match &work.service {
        ZoneService::Rfc2136 { key: Some(key), .. } => format!("the view of the key `{}`", key.name),
        service => format!("the zone at {service}"),
    };
    let text =
        format!("the resolver {} returns other records than {at}: {}", work.resolver, first_few(&differing));
    Err(Failure::refused(text)
        .hint("if a record changed recently: run the command again after its TTL")
        .hint("otherwise clients see another zone or view than the plan changes: create a plan with the key of their view (`--tsig-key-file`), or with a resolver of the clients (`--resolver`)"))
}

/// Returns the difference for one name; `None` if the answers agree.
async fn differing(
    name: &Name,
    provider: &dyn Provider,
    resolver: &Server,
) -> Result<Option<String>, Failure> {
    let mut sets = name.before.clone();
    // An alias returns the addresses of another name, so it is not compared.
    sets.retain(|set| set.alias.is_none());
    let kinds: Vec<_> = sets.iter().map(|set| set.kind).collect();
    if kinds.is_empty() || !provider.read(&name.name, &kinds).await.is_ok_and(|found| are_same(&found, &sets))
    {
        return Ok(None);
    }
    let answer = resolver.sets(&name.name, &kinds, true).await.map_err(|error| {
        Failure::refused(format!("the resolver of the plan does not answer: {error}")).hint(
            "every stage waits until this resolver returns the new records; repair it, or create a plan with another one: `netsurgeon dns plan`, option `--resolver`",
        )
    })?;
    Ok((!is_answer(&answer, &sets))
        .then(|| format!("`{}` has {}, not {}", name.name, described(&answer), described(&sets))))
}
