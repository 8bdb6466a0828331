# For Homebrew on Linux.
class Netsurgeon < Formula
  desc "Change the network of a Kubernetes cluster that is serving traffic"
  homepage "@URL@"
  version "@VERSION@"
  license "Apache-2.0"

  depends_on :linux

  on_intel do
    url "@URL@/releases/download/v@VERSION@/netsurgeon-@VERSION@-x86_64-unknown-linux-musl.tar.gz"
    sha256 "@SUM-x86_64-unknown-linux-musl@"
  end

  on_arm do
    url "@URL@/releases/download/v@VERSION@/netsurgeon-@VERSION@-aarch64-unknown-linux-musl.tar.gz"
    sha256 "@SUM-aarch64-unknown-linux-musl@"
  end

  def install
    bin.install "netsurgeon"
    bin.install_symlink "netsurgeon" => "kubectl-netsurgeon"
    bin.install_symlink "netsurgeon" => "kubectl_complete-netsurgeon"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/netsurgeon.bash" => "netsurgeon"
    zsh_completion.install "completions/_netsurgeon"
    fish_completion.install "completions/netsurgeon.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/netsurgeon version")
  end
end
