//! `zone-transfer`: whether the whole zone can be read.

use std::collections::BTreeSet;

use super::Dns;
use crate::nameserver::{NameserverError, Record};
use crate::preflight::{Check, Judged};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Dns> = Check {
    name: "zone-transfer",
    why: "only a zone transfer shows all records of a zone",
    judge: |dns| Box::pin(async { Ok(judge(dns.records().await?)) }),
};

/// Checks whether the whole zone can be read (AXFR).
fn judge(outcome: &Result<Vec<Record>, NameserverError>) -> Judged {
    match outcome {
        Ok(records) => {
            let names: BTreeSet<&str> = records.iter().map(|record| record.name.as_str()).collect();
            let records = counted(records.len(), "record", "records");
            Judged::pass(format!("{records} of {}", counted(names.len(), "name", "names")))
        }
        Err(error) => Judged::warn(
            error.to_string(),
            "allow zone transfers for the key that changes the zone (`allow-transfer` in BIND): ExternalDNS and the check `zone-share` \
             need them",
        ),
    }
}
