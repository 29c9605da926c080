package clusterinfo_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/clusterinfo"
)

// info is what a reader takes in of it as Argo CD does.
type info struct {
	ConnectionState struct {
		Status      string `json:"status"`
		Message     string `json:"message"`
		AttemptedAt string `json:"attemptedAt"`
	} `json:"connectionState"`
	ServerVersion string `json:"serverVersion"`
}

// large is an agent's own text, with a version in it, that is so long.
func large(size int) string {
	const text = `{"serverVersion":"1.34"}`
	return strings.Repeat(" ", size-len(text)) + text
}

func zip(tb testing.TB, text string) string {
	tb.Helper()
	var packed strings.Builder
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, text)
	require.NoError(tb, err)
	require.NoError(tb, w.Close())
	return packed.String()
}

func unzip(t *testing.T, packed string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(packed))
	require.NoError(t, err)
	plain, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(plain)
}

// Whatever an agent's Redis holds, the connection state is shown, and the reason why nothing else is.
func TestUnreadableClusterInfoStillShowsConnection(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 9, time.UTC)
	for why, owns := range map[string][]string{
		"":                                      {"", zip(t, "{}")},
		"(it is null)":                          {"null", zip(t, "null")},
		"(json: cannot unmarshal array":         {"[]", zip(t, "[]")},
		"(unexpected end of JSON input)":        {"{", zip(t, "{")},
		"(json: cannot unmarshal string":        {`"text"`, zip(t, `"text"`)},
		"(it is larger than 8 MiB)":             {large(8<<20 + 1), zip(t, large(8<<20+1))},
		"cluster|info into the spoke's Redis":   {"\x1f\x8bnot gzip", "\x1f\x8bnot gzip"},
		"(unexpected EOF): see what writes clu": {1: zip(t, large(1000))[:20]},
	} {
		for i, own := range owns {
			value, err := clusterinfo.Compose([]byte(own), i == 1, clusterinfo.State{Agent: "east", Connected: true}, now)
			require.NoError(t, err)
			plain := string(value)
			if i == 1 {
				plain = unzip(t, plain)
			}
			var read info
			require.NoError(t, json.Unmarshal([]byte(plain), &read))
			require.Equal(t, "Successful", read.ConnectionState.Status, why)
			require.Equal(t, "2026-05-04T03:02:01Z", read.ConnectionState.AttemptedAt, why)
			require.Empty(t, read.ServerVersion, why)
			if why == "" || own == "" {
				require.Equal(t, `agent "east" is connected`, read.ConnectionState.Message)
				continue
			}
			require.Contains(t, read.ConnectionState.Message, why)
			require.Contains(t, read.ConnectionState.Message, `agent "east" is connected, but what its Argo CD wrote`)
		}
	}
	value, err := clusterinfo.Compose([]byte(zip(t, large(8<<20))), true, clusterinfo.State{Agent: "east", Connected: true}, now)
	require.NoError(t, err)
	require.Contains(t, unzip(t, string(value)), `"serverVersion":"1.34"`, "so much may be there")
	value, err = clusterinfo.Compose([]byte(`{"applicationsCount":3}`), false, clusterinfo.State{Agent: "east"}, now)
	require.NoError(t, err)
	require.True(t, json.Valid(value))
	require.JSONEq(t, `{"applicationsCount":3,"connectionState":{"status":"Failed","message":"agent \"east\" has not connected",`+
		`"attemptedAt":"2026-05-04T03:02:01Z"}}`, string(value))
}

// Whatever connection state an agent writes, and however it spells the field, Argo CD reads the hub's.
func TestAgentCannotOverrideConnectionState(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"connectionState", "connectionstate", "CONNECTIONSTATE", "connection\u017ftate", `connection\u017ftate`} {
		own := `{"serverVersion":"1.34","` + key + `":{"status":"Successful","message":"all is well"}}`
		value, err := clusterinfo.Compose([]byte(own), false, clusterinfo.State{Agent: "east"}, time.Now())
		require.NoError(t, err)
		var read info
		require.NoError(t, json.Unmarshal(value, &read))
		require.Equal(t, "Failed", read.ConnectionState.Status, key)
		require.Contains(t, read.ConnectionState.Message, "has not connected", key)
		require.Equal(t, "1.34", read.ServerVersion)
	}
}

// Argo CD shows the message: it says which agent, whether it is connected, and since when.
func TestMessageSaysWhichAgentIsConnectedOrNotSinceWhen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 9, time.UTC)
	since, lost := now.Add(-time.Hour), now.Add(-time.Minute)
	gone := errors.New("connection refused")
	for _, c := range []struct {
		state               clusterinfo.State
		status, at, message string
	}{
		{
			clusterinfo.State{Connected: true, Since: since}, "Successful", "2026-05-04T03:02:01Z",
			`agent "east" is connected since 2026-05-04T02:02:01Z`,
		},
		{
			clusterinfo.State{Since: since}, "Failed", "2026-05-04T02:02:01Z",
			`agent "east" is not connected since 2026-05-04T02:02:01Z; what is shown is the last known state`,
		},
		{
			clusterinfo.State{Connected: true, Since: since, Lost: lost, Reason: gone}, "Unknown", "2026-05-04T03:01:01Z",
			`whether agent "east" is connected is not known since 2026-05-04T03:01:01Z, because the principal cannot be reached ` +
				`(connection refused); what is shown is the last known state`,
		},
	} {
		c.state.Agent = "east"
		for _, own := range []string{"", `{"serverVersion":"1.34"}`} {
			value, err := clusterinfo.Compose([]byte(own), false, c.state, now)
			require.NoError(t, err)
			var read info
			require.NoError(t, json.Unmarshal(value, &read))
			require.Equal(t, c.status, read.ConnectionState.Status)
			require.Equal(t, c.message, read.ConnectionState.Message)
			require.Equal(t, c.at, read.ConnectionState.AttemptedAt)
		}
	}
}
