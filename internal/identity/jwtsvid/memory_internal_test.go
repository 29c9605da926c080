package jwtsvid

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was shown is remembered until it expires, and not for ever.
func TestMemoryOfTokensIsBounded(t *testing.T) {
	t.Parallel()
	v := NewVerifier(Options{})
	show := func(name string, expiry time.Time) {
		v.forgetExpired()
		v.shown[sha256.Sum256([]byte(name))] = expiry
	}
	for i := range 10 * firstSweep {
		show("old "+strconv.Itoa(i), time.Now().Add(-time.Second))
		require.LessOrEqual(t, len(v.shown), firstSweep)
	}
	for i := range 4 * firstSweep {
		show("good "+strconv.Itoa(i), time.Now().Add(time.Hour))
	}
	for i := range 4 * firstSweep {
		_, known := v.shown[sha256.Sum256([]byte("good "+strconv.Itoa(i)))] // require.Contains looks at each
		require.True(t, known)
	}
}
