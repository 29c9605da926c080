package clusterinfo_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/clusterinfo"
)

// Whatever an agent keeps there, the hub learns whether it is connected.
func TestWhatCannotBeReadSaysNothing(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 9, time.UTC)
	for _, own := range []string{"", "null", "[]", "{", "\x1f\x8bnot gzip", `"text"`} {
		for _, compressed := range []bool{false, true} {
			value, err := clusterinfo.Compose([]byte(own), compressed, clusterinfo.State{Agent: "east", Connected: true}, now)
			require.NoError(t, err)
			if compressed {
				continue
			}
			require.JSONEq(t, `{"applicationsCount":0,"connectionState":{"status":"Successful","message":"","attemptedAt":"2026-05-04T03:02:01Z"}}`, string(value))
		}
	}
	value, err := clusterinfo.Compose([]byte(`{"applicationsCount":3}`), false, clusterinfo.State{Agent: "east"}, now)
	require.NoError(t, err)
	require.True(t, json.Valid(value))
	require.JSONEq(t, `{"applicationsCount":3,"connectionState":{"status":"Failed","message":"agent \"east\" has not connected",`+
		`"attemptedAt":"2026-05-04T03:02:01Z"}}`, string(value))
}
