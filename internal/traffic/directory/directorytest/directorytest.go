// Package directorytest waits for what a principal tells.
package directorytest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
)

// Until waits until something is true of a roster, and fails the test if that takes longer than patience.
func Until(tb testing.TB, r *directory.Roster, patience time.Duration, is func() bool) {
	tb.Helper()
	late := time.After(patience)
	for {
		changed := r.Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(tb, "it did not come true", "%v, %v", r.All(), r.Ready())
		}
	}
}
