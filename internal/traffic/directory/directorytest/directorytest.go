// Package directorytest waits for updates of a directory, for tests.
package directorytest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
)

// Until waits until something is true of a directory, and fails the test if that takes longer than timeout.
func Until(tb testing.TB, d *directory.Directory, timeout time.Duration, is func() bool) {
	tb.Helper()
	late := time.After(timeout)
	for {
		changed := d.Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(tb, "the directory did not change as expected", "%v, %v", d.All(), d.Ready())
		}
	}
}
