// Package bubble runs a test in a bubble of testing/synctest, whose time is its own.
package bubble

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Test runs f as [synctest.Test] does, on one processor.
//
// The race detector crashes when two goroutines of a bubble run expired timers at the same time: the runtime hands both
// the detector's state for the bubble's timers, which is made for one thread (https://go.dev/issue/78156). With one
// processor no two goroutines run at the same time. The detector misses nothing by it: it looks for accesses that
// nothing orders, not for accesses that happen to coincide.
//
// The processors are the process's: t must not be a parallel test, nor be inside one. Test panics if it is.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Setenv("GOMAXPROCS", "1") // what testing offers to refuse parallel tests
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f) //nolint:forbidigo // this is where it is kept from crashing
}
