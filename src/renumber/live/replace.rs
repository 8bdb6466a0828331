//! Replacing values of an object that somebody else owns: only what is as expected, and only if nobody changed the object in
//! between.

use serde_json::Value;

use super::LiveWorld;
use crate::cluster::{ClusterError, ObjectRef};
use crate::operation::{Observed, ValueChange, WorldError};

/// How often it is tried again when somebody else was faster; controllers write the status of objects all the time.
const ATTEMPTS: usize = 10;

impl LiveWorld<'_> {
    /// Replaces the values; does nothing where all are as they shall be.
    pub(super) async fn replace(
        &self,
        object: &ObjectRef<'_>,
        values: &[ValueChange],
    ) -> Result<(), WorldError> {
        for _ in 1..ATTEMPTS {
            let mut found = self.there(object).await?;
            match judge(object, &found, values) {
                Observed::Done => return Ok(()),
                Observed::Changed(reason) => return Err(WorldError(reason)),
                Observed::NotDone => {}
            }
            for value in values {
                put(&mut found, &value.pointer, &value.after);
            }
            match self.cluster.replace(&found).await {
                Err(ClusterError::Conflict { .. }) => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
        Err(WorldError(format!("{object} changes all the time: {ATTEMPTS} attempts met with another writer")))
    }

    /// Compares the values with what is there.
    pub(super) async fn compare_values(
        &self,
        object: &ObjectRef<'_>,
        values: &[ValueChange],
    ) -> Result<Observed, WorldError> {
        Ok(judge(object, &self.there(object).await?, values))
    }

    async fn there(&self, object: &ObjectRef<'_>) -> Result<Value, WorldError> {
        let found = self.cluster.get(object).await?;
        found.ok_or_else(|| {
            WorldError(format!("{object} is not there any more; it was when this was planned"))
        })
    }
}

fn judge(object: &ObjectRef<'_>, found: &Value, values: &[ValueChange]) -> Observed {
    let at = |value: &ValueChange| found.pointer(&value.pointer).cloned().unwrap_or(Value::Null);
    if values.iter().all(|value| at(value) == value.after) {
        return Observed::Done;
    }
    match values.iter().find(|value| at(value) != value.before) {
        None => Observed::NotDone,
        Some(other) => Observed::Changed(format!(
            "`{}` of {object} is {}, expected {}",
            other.pointer,
            at(other),
            other.before
        )),
    }
}

/// Puts a value in its place; a null takes away what is there.
fn put(object: &mut Value, pointer: &str, new: &Value) {
    let Some((around, name)) = pointer.rsplit_once('/') else { return };
    let name = name.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(around) {
        Some(Value::Object(members)) if new.is_null() => drop(members.remove(&name)),
        Some(Value::Object(members)) => drop(members.insert(name, new.clone())),
        Some(Value::Array(items)) => {
            if let Some(item) = name.parse::<usize>().ok().and_then(|place| items.get_mut(place)) {
                *item = new.clone();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_values_or_none() {
        let object = ObjectRef::new("apps/v1", "DaemonSet", Some("kube-system"), "node-local-dns");
        let change = |pointer: &str, before: Value, after: Value| ValueChange {
            pointer: pointer.to_string(),
            before,
            after,
        };
        let values = [
            change("/args/1", json!("a"), json!("a,b")),
            change("/annotations/x~1y", Value::Null, json!("now")),
        ];
        let mut found = json!({"args": ["-localip", "a"], "annotations": {"z": "1"}});
        assert!(matches!(judge(&object, &found, &values), Observed::NotDone));
        for value in &values {
            put(&mut found, &value.pointer, &value.after);
        }
        assert_eq!(found, json!({"args": ["-localip", "a,b"], "annotations": {"z": "1", "x/y": "now"}}));
        assert!(matches!(judge(&object, &found, &values), Observed::Done));
        put(&mut found, "/annotations/x~1y", &Value::Null);
        let Observed::Changed(reason) = judge(&object, &found, &values) else { panic!("half of it") };
        assert_eq!(reason, "`/args/1` of DaemonSet `kube-system/node-local-dns` is \"a,b\", expected \"a\"");
    }
}
