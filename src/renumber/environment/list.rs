//! Changes items of a list in an object that netsurgeon does not own, and keeps concurrent changes to the object.

use serde_json::Value;

use super::LiveEnvironment;
use crate::kube_api::{ClusterError, ObjectRef};
use crate::operation::StepFault;
use crate::renumber::effect::List;

/// Maximum number of attempts. An attempt fails if another writer changes the object concurrently.
const ATTEMPTS: usize = 10;

impl LiveEnvironment<'_> {
    /// Adds items to a list and removes other items. With `back`, does the reverse. Does nothing if the list already matches, or
    /// does not exist.
    pub(super) async fn change_list(&self, list: &List, back: bool) -> Result<(), StepFault> {
        let object = ObjectRef::new(&list.api_version, &list.kind, None, &list.name);
        let (with, without) = if back { (&list.without, &list.with) } else { (&list.with, &list.without) };
        for _ in 0..ATTEMPTS {
            let Some(mut found) = self.cluster.get(&object).await? else { return Ok(()) };
            if !change(&mut found, &list.pointer, with, without) {
                return Ok(());
            }
            self.look_at_guards().await?;
            match self.cluster.replace(&found).await {
                Err(ClusterError::Conflict { .. }) => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
        Err(StepFault::Halt(format!(
            "{object} changes continuously: {ATTEMPTS} attempts conflicted with another writer"
        )))
    }
}

/// Changes the list in an object. Returns whether a change was necessary.
fn change(object: &mut Value, pointer: &str, with: &[Value], without: &[Value]) -> bool {
    let Some(Value::Array(items)) = object.pointer_mut(pointer) else { return false };
    let before = items.clone();
    items.retain(|item| !without.contains(item));
    items.extend(with.iter().filter(|item| !before.contains(item)).cloned());
    *items != before
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn change_keeps_other_items() {
        let (old, new, other) = (json!({"cidr": "a"}), json!({"cidr": "b"}), json!({"cidr": "c"}));
        let mut object = json!({"spec": {"list": [old, other]}});
        let (old, new) = ([json!({"cidr": "a"})], [new]);
        assert!(change(&mut object, "/spec/list", &new, &[]));
        assert_eq!(object, json!({"spec": {"list": [old[0], other, new[0]]}}));
        assert!(!change(&mut object, "/spec/list", &new, &[]), "twice is once");
        let both = object.clone();
        assert!(change(&mut object, "/spec/list", &new, &old));
        assert_eq!(object, json!({"spec": {"list": [other, new[0]]}}));
        object = both;
        assert!(change(&mut object, "/spec/list", &[], &new));
        assert_eq!(object, json!({"spec": {"list": [old[0], other]}}), "and back");
        assert!(!change(&mut object, "/spec/none", &new, &[]));
    }
}
