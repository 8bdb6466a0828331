// Command node is the kubelet, and the scheduler that assigns Pods to it, behind one multi-call binary. It is separate from the control
// plane because most tests need neither, and only the newest version is built.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	components := map[string]func() *cobra.Command{
		"kube-scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":        func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	var component func() *cobra.Command
	if len(os.Args) > 1 {
		component = components[os.Args[1]]
	}
	if component == nil {
		fmt.Fprintln(os.Stderr, "usage: node kube-scheduler|kubelet [flags]")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	os.Exit(cli.Run(component()))
}
