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

// Whatever else an agent says of its connection, and however it spells that, who reads it as Argo CD does hears the hub.
func TestTheHubsWordOnTheConnectionHolds(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"connectionState", "connectionstate", "CONNECTIONSTATE", "connection\u017ftate", `connection\u017ftate`} {
		own := `{"serverVersion":"1.34","` + key + `":{"status":"Successful","message":"all is well"}}`
		value, err := clusterinfo.Compose([]byte(own), false, clusterinfo.State{Agent: "east"}, time.Now())
		require.NoError(t, err)
		var read struct {
			ConnectionState struct {
				Status  string `json:"status"`
				Message string `json:"message"`
			} `json:"connectionState"`
			ServerVersion string `json:"serverVersion"`
		}
		require.NoError(t, json.Unmarshal(value, &read))
		require.Equal(t, "Failed", read.ConnectionState.Status, key)
		require.Contains(t, read.ConnectionState.Message, "has not connected", key)
		require.Equal(t, "1.34", read.ServerVersion)
	}
}
