// Command kubectl is kubectl of a pinned version, which `make bench` compares `netsurgeon mirror apply` with. It is linked from
// the public Go module, so that its version is that of the tests' API server.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// The same as `cmd/kubectl/kubectl.go` of Kubernetes, without the authentication plugins of clouds.
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
