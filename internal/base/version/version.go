// Package version says which build of the product this is.
package version

import "runtime/debug"

// Written by the linker, -X; empty in a plain `go build`.
//
//nolint:gochecknoglobals // the linker can write only to package variables
var (
	version  string
	revision string
)

// Version returns the release, or git's description of the commit between releases, or "dev" for a build that was
// told neither.
func Version() string {
	if version == "" {
		return "dev"
	}
	return version
}

// Revision returns the full hash of the commit that was built, or "unknown".
func Revision() string {
	if revision != "" {
		return revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return "unknown"
}
