// Command registry is the image registry of the CNCF, with the drivers and the ways of authentication that the tests need. Its
// complete program links the SDKs of three clouds.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/auth/token"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
)

func main() {
	// The same as `cmd/registry/main.go` of the module.
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
}
