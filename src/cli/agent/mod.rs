//! `netsurgeon agent`: what runs in the Pods of netsurgeon on nodes. Hidden from the help, because users do not call it.

mod node_state;

use clap::{Args, Subcommand};

use super::output::machine_output;
use super::{Context, Outcome};
use crate::agent::{Identity, Listening, probe, serve};
use crate::session::Failure;

/// Work on a node, in a Pod of netsurgeon
///
/// `netsurgeon network test` and `netsurgeon cni show` start these commands in their Pods.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    Serve(ServeArgs),
    Probe(ProbeArgs),
    Wait(WaitArgs),
    NodeState(node_state::NodeStateArgs),
    RunInRoot(node_state::RunInRootArgs),
}

/// Answer requests of the test over TCP and UDP
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  NETSURGEON_AGENT_TOKEN=00112233445566778899aabbccddeeff \\
      netsurgeon agent serve --name a --port 17250")]
pub struct ServeArgs {
    #[command(flatten)]
    identity: IdentityArgs,
}

/// Read questions as JSON lines from stdin, and write what was seen as JSON lines to stdout
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  echo '{\"id\":1,\"ask\":\"facts\"}' | \\
      NETSURGEON_AGENT_TOKEN=00112233445566778899aabbccddeeff \\
      netsurgeon agent probe --name a --port 17250")]
pub struct ProbeArgs {
    #[command(flatten)]
    identity: IdentityArgs,
}

/// Do nothing until a signal arrives
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  netsurgeon agent wait")]
pub struct WaitArgs {}

#[derive(Debug, Args)]
struct IdentityArgs {
    /// The name of the agent in its answers
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The port of the agent's server
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// The token of the test, 32 hexadecimal digits
    #[arg(long, env = "NETSURGEON_AGENT_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: String,
    /// The address at which the agent listens and from which it asks [default: all addresses]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<std::net::IpAddr>,
}

impl IdentityArgs {
    fn identity(&self) -> Result<Identity, Failure> {
        Identity::new(&self.name, &self.token, self.address)
            .ok_or_else(|| Failure::usage("the token is not text of 32 hexadecimal digits"))
    }
}

/// Runs the command.
pub async fn run(context: &Context, command: &AgentCommand) -> Result<Outcome, Failure> {
    match command {
        AgentCommand::Serve(args) => {
            let listening = Listening::open(args.identity.identity()?, args.identity.port).await?;
            let ended = super::network::until_signal();
            tokio::select! {
                served = serve(listening) => served?,
                () = ended => {}
            }
        }
        AgentCommand::Probe(args) => {
            let identity = args.identity.identity()?;
            probe(identity, args.identity.port, tokio::io::stdin(), machine_output()).await?;
        }
        AgentCommand::Wait(_) => super::network::until_signal().await,
        AgentCommand::NodeState(args) => return node_state::run(context, args),
        AgentCommand::RunInRoot(args) => return Err(node_state::run_in_root(args)),
    }
    Ok(Outcome::Done)
}
