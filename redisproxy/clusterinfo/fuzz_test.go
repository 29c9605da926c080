package clusterinfo_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/clusterinfo"
)

// FuzzCompose has an agent's Redis hold anything at all as what its Argo CD knows of the cluster. What argocd-server gets is JSON that
// it can decode, and says of the connection what the hub knows: nothing of the agent's own account of that is left.
func FuzzCompose(f *testing.F) {
	for _, own := range []string{
		``, `null`, `[]`, `{`, `{}`, `{"serverVersion":"1.34","applicationsCount":3}`,
		`{"connectionState":{"status":"Successful"}}`, `{"CONNECTIONSTATE":{"status":"Successful"}}`, `{"connection\u017ftate":7}`,
		"{\"connection\u017ftate\":{\"status\":\"Successful\"}}", `{"connectionState":{"status":"Successful"},"connectionState":[]}`,
		`{"applicationsCount":"many"}`, `{"a":1}{"connectionState":{}}`, "{\"\xff\":1}", `{"connectionState":{"attemptedAt":"9999-99-99"}}`,
	} {
		f.Add([]byte(own), false)
		f.Add([]byte(own), true)
		f.Add([]byte(zip(f, own)), true)
	}
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	f.Fuzz(func(t *testing.T, own []byte, compressed bool) {
		state := clusterinfo.State{Agent: "east", Since: now}
		value, err := clusterinfo.Compose(own, compressed, state, now.Add(time.Hour))
		require.NoError(t, err)
		if compressed {
			r, err := gzip.NewReader(bytes.NewReader(value))
			require.NoError(t, err)
			value, err = io.ReadAll(r)
			require.NoError(t, err)
		}
		require.True(t, json.Valid(value))
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(value, &fields))
		var read struct{ ConnectionState json.RawMessage } // in any case of letters, as argocd-server reads it
		require.NoError(t, json.Unmarshal(value, &read))
		require.JSONEq(t, `{"status":"Failed","attemptedAt":"2026-05-04T03:02:01Z",`+
			`"message":"agent \"east\" is not connected since 2026-05-04T03:02:01Z; what is shown is the last known state"}`, string(read.ConnectionState))
		require.Equal(t, string(fields["connectionState"]), string(read.ConnectionState))
		require.Contains(t, fields, "applicationsCount")
	})
}
