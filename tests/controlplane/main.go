// Command controlplane is the Kubernetes control plane and kube-proxy behind one multi-call binary,
// linked from the public Go modules so that the tests can run the real components anywhere that the
// module proxy is reachable. The first argument, or the name that it was started by, selects the
// component; everything after it is that component's own command line.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() {
	components := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-proxy":              proxy.NewProxyCommand,
	}
	name := filepath.Base(os.Args[0])
	if _, found := components[name]; !found && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	component, found := components[name]
	if !found {
		fmt.Fprintln(os.Stderr, "usage: controlplane kube-apiserver|kube-controller-manager|kube-proxy [flags]")
		os.Exit(2)
	}
	os.Exit(cli.Run(component()))
}
