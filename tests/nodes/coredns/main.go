// Command coredns is CoreDNS with the plug-ins that a cluster's configuration names. Its complete program links the SDKs of three
// clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// The order in which plug-ins handle a query: that of `plugin.cfg` of the module.
	dnsserver.Directives = []string{
		"reload", "health", "ready", "prometheus", "errors", "log", "loadbalance", "cache", "hosts", "kubernetes", "loop", "forward",
	}
	coremain.Run()
}
