// Command externaldns is ExternalDNS with the sources, the providers and the registry that the tests need:
// its own packages read Ingresses and Services, plan the changes, own names through TXT records and write
// to Route 53 or by RFC 2136. Its complete program links every DNS provider, and with them modules that are not available
// everywhere. Only the few calls that join its packages, one reconcile loop, are of this file; the command
// line is that of ExternalDNS.
package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	log "github.com/sirupsen/logrus"
	"sigs.k8s.io/external-dns/endpoint"
	"sigs.k8s.io/external-dns/pkg/apis/externaldns"
	"sigs.k8s.io/external-dns/pkg/apis/externaldns/validation"
	"sigs.k8s.io/external-dns/plan"
	"sigs.k8s.io/external-dns/provider"
	"sigs.k8s.io/external-dns/provider/aws"
	"sigs.k8s.io/external-dns/provider/rfc2136"
	"sigs.k8s.io/external-dns/registry"
	"sigs.k8s.io/external-dns/registry/txt"
	"sigs.k8s.io/external-dns/source"
	"sigs.k8s.io/external-dns/source/annotations"
	"sigs.k8s.io/external-dns/source/wrappers"
)

// The providers of this build.
var providers = map[string]func(
	context.Context, *externaldns.Config, *endpoint.DomainFilter,
) (provider.Provider, error){
	"aws":     aws.New,
	"rfc2136": rfc2136.New,
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, arguments []string) error {
	options := externaldns.NewConfig()
	if err := options.ParseFlags(arguments); err != nil {
		return err
	}
	if err := validation.ValidateConfig(options); err != nil {
		return err
	}
	open, known := providers[options.Provider]
	if !known || options.Registry != "txt" {
		return errors.New("this build has only the providers aws and rfc2136, and the registry txt")
	}
	level, err := log.ParseLevel(options.LogLevel)
	if err != nil {
		return err
	}
	log.SetLevel(level)
	annotations.SetAnnotationPrefix(options.AnnotationPrefix)
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Fatal(http.ListenAndServe(options.MetricsAddress, nil)) }()

	sourceOptions, err := source.NewSourceConfig(options)
	if err != nil {
		return err
	}
	wanted, err := wrappers.Build(ctx, sourceOptions)
	if err != nil {
		return err
	}
	names := endpoint.NewDomainFilterWithOptions(
		endpoint.WithDomainFilter(options.DomainFilter),
		endpoint.WithDomainExclude(options.DomainExclude),
	)
	zones, err := open(ctx, options, names)
	if err != nil {
		return err
	}
	owned, err := txt.New(options, zones)
	if err != nil {
		return err
	}
	for ; ; time.Sleep(options.Interval) {
		err := reconcile(ctx, options, wanted, owned, names)
		switch {
		case errors.Is(err, provider.SoftError):
			log.Errorf("reconcile loop failed: %v", err)
		case err != nil:
			return err
		default:
			log.Info("reconcile loop completed")
		}
	}
}

// Makes the records of the zone those that the sources want, once.
func reconcile(
	ctx context.Context, options *externaldns.Config, wanted source.Source, owned registry.Registry,
	names endpoint.DomainFilterInterface,
) error {
	current, err := owned.Records(ctx)
	if err != nil {
		return err
	}
	desired, err := wanted.Endpoints(ctx)
	if err != nil {
		return err
	}
	if desired, err = owned.AdjustEndpoints(desired); err != nil {
		return err
	}
	policy, known := plan.Policies[options.Policy]
	if !known {
		return errors.New("unknown policy: " + options.Policy)
	}
	todo := plan.Plan{
		Policies:       []plan.Policy{policy},
		Current:        current,
		Desired:        desired,
		DomainFilter:   endpoint.MatchAllDomainFilters{names, owned.GetDomainFilter()},
		ManagedRecords: options.ManagedDNSRecordTypes,
		ExcludeRecords: options.ExcludeDNSRecordTypes,
		OwnerID:        owned.OwnerID(),
		OldOwnerID:     options.TXTOwnerOld,
	}
	changes := todo.Calculate().Changes
	if !changes.HasChanges() {
		return nil
	}
	return owned.ApplyChanges(context.WithValue(ctx, provider.RecordsContextKey, current), changes)
}
