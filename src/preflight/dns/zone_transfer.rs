//! `zone-transfer`: whether the whole zone can be read.

use std::collections::BTreeSet;

use crate::dns::reader::CutoverReader;
use crate::inventory;
use crate::nameserver::RecordSet;
use crate::preflight::{Check, Judged};
use crate::words::counted;

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "zone-transfer",
    why: "only a zone transfer shows all records of a zone",
    needs: &[],
    judge: |dns| Box::pin(async { Ok(judge(dns.zone.records().await?)) }),
};

/// Checks whether the whole zone can be read (AXFR, or the API of Route 53).
fn judge(outcome: &inventory::Read<Vec<RecordSet>>) -> Judged {
    match outcome {
        Ok(sets) => {
            let names: BTreeSet<&str> = sets.iter().map(|set| set.name.as_str()).collect();
            let records = counted(sets.iter().map(|set| set.data.len()).sum(), "record", "records");
            Judged::pass(format!("{records} of {}", counted(names.len(), "name", "names")))
        }
        Err(unread) => Judged::warn(
            &unread.observed,
            "allow zone transfers for the key that changes the zone (`allow-transfer` in BIND): ExternalDNS and the check `zone-share` \
             need them",
        ),
    }
}
