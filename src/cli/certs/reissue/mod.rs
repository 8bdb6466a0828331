//! `netsurgeon certs reissue`: reissues an API server's certificate with other addresses and names.

mod difference;
mod files;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use time::Duration;
use zeroize::Zeroizing;

use self::difference::Difference;
use self::files::{Chain, FileArgs, Loaded};
use super::now;
use crate::certs::{
    Authority, Changes, Distrust, Name, PrivateKey, belongs, has_only_certificates, is_trusted, is_valid_for,
    reissue, request, request_to_pem, to_pem, with_first,
};
use crate::cli::file::{Readers, at, write_file};
use crate::cli::{Context, Outcome, file_suffix};
use crate::host::replace::{BackupPlace, Replacement, replace};
use crate::ip::ServiceCidr;
use crate::session::Failure;
use crate::words::pasted;

/// Maximum time that the clock of a client can be behind. With `--days`, the validity starts one hour before the current time,
/// so that clients with a slow clock accept the certificate.
const SKEW: Duration = Duration::hours(1);

/// Reissue an API server's certificate with other addresses and names
///
/// Starts from the current certificate. Its subject, names, addresses, usages, validity and key stay the same, except for the
/// changes that you request. The serial number is new. If the CA's key is on this host, the command signs the new certificate
/// with this key. If the CA's key is elsewhere, use `--csr-out`, then `--cert-in`. The command shows the difference, asks for
/// confirmation, and keeps the old files next to the new files. An API server loads the new certificate and key within a minute,
/// without a restart. It never serves a certificate and a key that do not match.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a control-plane host: only show what would change
  netsurgeon certs reissue --for-cidr 10.200.0.0/16 --dry-run
  # cover the old and the new address
  netsurgeon certs reissue --for-cidr 10.200.0.0/16 --yes
  # when no client uses the old address any more
  netsurgeon certs reissue --drop-old 10.96.0.0/16 --yes
  # the CA's key is elsewhere
  netsurgeon certs reissue --for-cidr 10.200.0.0/16 --csr-out apiserver.csr
  # install the signed certificate
  netsurgeon certs reissue --cert-in signed.crt --yes
  # restore the old certificate
  netsurgeon certs reissue \\
      --cert-in /etc/kubernetes/pki/apiserver.crt.20261122T044500Z.old")]
pub struct ReissueArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Add the first address of this Service range (the address of `default/kubernetes`); can be repeated
    #[arg(long, value_name = "CIDR")]
    for_cidr: Vec<ServiceCidr>,
    /// Remove the first address of this Service range. Do this only after all clients have stopped using the range
    #[arg(long, value_name = "CIDR")]
    drop_old: Vec<ServiceCidr>,
    /// Add this address
    #[arg(long, value_name = "IP")]
    add_ip: Vec<IpAddr>,
    /// Add this DNS name
    #[arg(long, value_name = "NAME")]
    add_dns: Vec<String>,
    /// Remove this address
    #[arg(long, value_name = "IP")]
    drop_ip: Vec<IpAddr>,
    /// Remove this DNS name
    #[arg(long, value_name = "NAME")]
    drop_dns: Vec<String>,
    /// Days of validity, counted from now [default: the validity of the old certificate]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..))]
    days: Option<u16>,
    /// Create a new private key of the same kind as the current key
    #[arg(long)]
    new_key: bool,
    /// Write a signing request for a CA elsewhere to this file, and do not change the certificate. With `--new-key`, also write
    /// the new key next to the request
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert_in", "days", "dry_run", "yes"])]
    csr_out: Option<PathBuf>,
    /// Install the certificate in this file. It can be a certificate that a CA elsewhere has signed, or an earlier certificate
    #[arg(
        long, value_name = "FILE",
        conflicts_with_all = ["for_cidr", "drop_old", "add_ip", "add_dns", "drop_ip", "drop_dns", "days", "new_key"]
    )]
    cert_in: Option<PathBuf>,
    /// The private key for the certificate in `--cert-in` [default: the current key]
    #[arg(long, value_name = "FILE", requires = "cert_in")]
    key_in: Option<PathBuf>,
    /// Only show the difference
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// The certificate and the key to install.
struct Prepared {
    certificate: Vec<u8>,
    /// The new text of the certificate's file.
    text: String,
    /// The text of the key's file, if the key changes.
    key: Option<Zeroizing<String>>,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &ReissueArgs) -> Result<Outcome, Failure> {
    let loaded = args.files.load()?;
    let changes = args.changes()?.against(&loaded.certificate);
    if let Some(file) = &args.csr_out {
        return ask_for_it(context, args, &loaded, &changes, file);
    }
    if args.cert_in.is_none() && changes.is_empty() && !args.new_key {
        let difference = Difference::none(&loaded);
        context.output.data(&difference, |_| String::new())?;
        context.output.progress(&format!("{}: nothing to change", loaded.files.certificate.display()));
        return Ok(Outcome::Done);
    }
    let prepared = match &args.cert_in {
        Some(file) => args.signed_elsewhere(&loaded, file)?,
        None => args.signed_here(&loaded, &changes)?,
    };
    let mut difference = Difference::of(&loaded, &prepared.certificate, prepared.key.is_some())?;
    if args.dry_run {
        context.output.data(&difference, |output| difference.text(output))?;
        context.output.note("nothing was written (`--dry-run`)");
        return Ok(Outcome::Done);
    }
    context.output.progress(&difference.text(&context.output));
    let question = format!("Replace `{}`?", loaded.files.certificate.display());
    context.output.ask(&question, args.yes)?;
    difference.replaced(install(&loaded, prepared)?);
    context.output.data(&difference, |_| String::new())?;
    context.output.progress(&difference.what_next(args.files.command(), &args.verification()));
    Ok(Outcome::Done)
}

/// Writes a signing request. With `--new-key`, also writes the new key next to the request.
fn ask_for_it(
    context: &Context,
    args: &ReissueArgs,
    loaded: &Loaded,
    changes: &Changes,
    file: &Path,
) -> Result<Outcome, Failure> {
    let new_key = args.new_key.then(|| loaded.new_key()).transpose()?;
    let csr = request(&loaded.certificate, changes, new_key.as_ref().unwrap_or(&loaded.key))
        .map_err(at(&loaded.files.certificate))?;
    let mut back = format!("`{} --cert-in SIGNED`", args.files.command());
    if let Some(key) = new_key {
        let beside = PathBuf::from(format!("{}.key", file.display()));
        files::write_key(&beside, &key)?;
        back = format!("`{} --cert-in SIGNED --key-in {}`", args.files.command(), pasted(&beside));
    }
    write_file(file, request_to_pem(&csr).as_bytes(), Readers::All)?;
    context.output.progress(&format!(
        "wrote the signing request {}; when the CA has signed it, run {back}",
        file.display()
    ));
    Ok(Outcome::Done)
}

/// Fails if the CA did not sign the current certificate. The new certificate gets the names of the current certificate, so these
/// names must come from the CA. The current certificate is allowed to be expired.
fn refuse_forged(loaded: &Loaded, authority: &Authority) -> Result<(), Failure> {
    let own = &loaded.certificate;
    let then = now().min(own.not_after).max(own.not_before);
    is_trusted(&own.der, &loaded.others, &authority.trusted, then).map_err(|error| {
        let (file, by) = (loaded.files.certificate.display(), loaded.files.authority.display());
        let text = match error {
            Distrust::Unsigned(reason) => {
                format!("`{file}` was not signed by `{by}`, so netsurgeon does not reissue it: {reason}")
            }
            error => {
                format!("netsurgeon cannot verify that `{by}` has signed `{file}`, so it does not reissue it: {error}")
            }
        };
        Failure::refused(text)
            .hint("issue it with the tool that originally issued it (kubeadm: move the certificate and its key away, then `kubeadm init phase certs apiserver --config FILE`), or restore the old certificate")
    })
}

/// Replaces the files, and returns the files with the old content.
fn install(loaded: &Loaded, prepared: Prepared) -> Result<Vec<PathBuf>, Failure> {
    let content = prepared.text.into_bytes().into();
    let mut all = vec![Replacement { path: loaded.files.certificate.clone(), content }];
    if let Some(key) = prepared.key {
        all.push(Replacement {
            path: loaded.files.key.clone(),
            content: Zeroizing::new(key.as_bytes().to_vec()),
        });
    }
    let suffix = file_suffix();
    replace(&all, Some(BackupPlace::Beside(&suffix))).map_err(|error| {
        Failure::refused(error.to_string())
            .hint("run the command again: it first removes the files that this run left behind")
    })
}

impl ReissueArgs {
    /// Returns the options of `certs verify` that check the changes of this run, each with a leading space.
    fn verification(&self) -> String {
        let all = |option: &str, values: &[String]| -> String {
            values.iter().fold(String::new(), |all, value| all + " " + option + " " + value)
        };
        let text = |ranges: &[ServiceCidr]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>();
        let names: Vec<String> =
            self.add_ip.iter().map(ToString::to_string).chain(self.add_dns.iter().cloned()).collect();
        let (with, without) =
            (all("--cidr", &text(&self.for_cidr)), all("--without-cidr", &text(&self.drop_old)));
        format!("{with}{without}{}", all("--name", &names))
    }

    fn changes(&self) -> Result<Changes, Failure> {
        let first = |range: &ServiceCidr| {
            let first = range.first().map(Name::Address);
            first.ok_or_else(|| Failure::usage(format!("`{range}` has no usable first address")))
        };
        let named = |ranges: &[ServiceCidr], addresses: &[IpAddr], names: &[String]| {
            let mut all = ranges.iter().map(first).collect::<Result<Vec<_>, _>>()?;
            all.extend(addresses.iter().copied().map(Name::Address));
            all.extend(names.iter().cloned().map(Name::Dns));
            Ok::<_, Failure>(all)
        };
        let add = named(&self.for_cidr, &self.add_ip, &self.add_dns)?;
        let drop = named(&self.drop_old, &self.drop_ip, &self.drop_dns)?;
        if let Some(both) = add.iter().find(|name| drop.contains(name)) {
            return Err(Failure::usage(format!("`{both}` is both added and dropped")));
        }
        let now = now();
        let until = |days: u16| {
            now.checked_add(Duration::days(days.into())).map(|until| (now.saturating_sub(SKEW), until))
        };
        Ok(Changes { add, drop, validity: self.days.and_then(until) })
    }

    /// Creates the new certificate, and signs it with the CA's key.
    fn signed_here(&self, loaded: &Loaded, changes: &Changes) -> Result<Prepared, Failure> {
        let (now, file) = (now(), &loaded.files.certificate);
        if changes.validity.is_none() && loaded.certificate.left(now).is_negative() {
            let text = format!(
                "`{}` has expired, and a reissued certificate would have the same validity period",
                file.display()
            );
            return Err(Failure::refused(text).hint("set a validity: `--days 365`"));
        }
        let authority = self.files.authority(loaded, now)?;
        let new_key = self.new_key.then(|| loaded.new_key()).transpose()?;
        let serial = rand::random();
        let made =
            reissue(&loaded.certificate, changes, &authority, new_key.as_ref(), serial).map_err(at(file))?;
        refuse_forged(loaded, &authority)?;
        let mut judged = is_trusted(&made, &loaded.others, &authority.trusted, now);
        for name in &changes.add {
            judged = judged.and_then(|()| is_valid_for(&made, name));
        }
        judged.map_err(|error| Failure::refused(format!("the new certificate would not work: {error}")))?;
        let key = new_key.map(|key| key.to_pem()).transpose();
        let key = key.map_err(|error| Failure::refused(error.to_string()))?;
        Ok(Prepared { text: with_first(&loaded.text, &made), certificate: made, key })
    }

    /// Reads a certificate that was signed elsewhere. Fails if it does not match its key, if the CA did not sign it, or if it is
    /// not valid now. If the file has intermediate certificates, they replace the intermediate certificates of the old file.
    fn signed_elsewhere(&self, loaded: &Loaded, file: &Path) -> Result<Prepared, Failure> {
        let Chain { text, first: certificate, others } = files::chain(file)?;
        let others: Vec<Vec<u8>> = others.into_iter().map(|one| one.der).collect();
        let key = self.key_in.as_deref().map(files::key).transpose()?;
        let of_it: &PrivateKey = key.as_ref().map_or(&loaded.key, |(_, key)| key);
        belongs(of_it, &certificate).map_err(|error| {
            let failure = at(file)(error);
            if key.is_some() {
                failure
            } else {
                failure.hint("give the private key of this certificate: `--key-in`")
            }
        })?;
        let authorities = files::chain(&loaded.files.authority)?;
        let trusted: Vec<Vec<u8>> =
            std::iter::once(authorities.first).chain(authorities.others).map(|one| one.der).collect();
        let between = if others.is_empty() { &loaded.others } else { &others };
        is_trusted(&certificate.der, between, &trusted, now()).map_err(at(file))?;
        let text = match others.as_slice() {
            [] => with_first(&loaded.text, &certificate.der),
            // A private key must not get into a file that every user can read.
            _ if has_only_certificates(&text) => text,
            others => to_pem(&certificate.der) + &others.iter().map(|der| to_pem(der)).collect::<String>(),
        };
        Ok(Prepared { certificate: certificate.der, text, key: key.map(|(text, _)| text) })
    }
}
