//! Reads from an AWS account: EC2, IAM and STS, through their query APIs.
//!
//! The requests of these services differ only in names: a form with an action and its parameters, and an XML document as the answer.
//! Signatures, retries, time limits and proxies come from the AWS SDK's runtime. Its crates with all types of a service are not used:
//! that of EC2 takes longer to compile than the rest of this program.

mod account;
mod body_limit;
pub mod ec2;
mod error;
pub mod iam;
mod query;
mod region;
mod xml_list;

pub use account::{Account, configuration};
pub use body_limit::BodyLimit;
pub use error::{AwsError, NO_CREDENTIALS, causes, credentials_reason, innermost};
pub use query::{Query, Service};
pub use region::Region;
