package redis_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/redis"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// ref is a reference to a resource as Argo CD writes it.
func ref(group, kind, namespace, name string) string {
	return `"group":"` + group + `","version":"v1","kind":"` + kind + `","namespace":"` + namespace + `","name":"` + name + `"`
}

// tree is a part of a tree with a child in that namespace, and what belongs to it.
func tree(namespace string) string {
	child := ref("argoproj.io", "Application", namespace, "child")
	return `{"nodes":[{` + child + `,"createdAt":"x"},{` + ref("", "ConfigMap", "argocd", "a") + `,"parentRefs":[{` + child + `}]},{` +
		ref("argoproj.io", "Application", "team", "other") + `},{` + ref("argoproj.io", "AppProject", "argocd", "p") + `}],` +
		`"orphanedNodes":[{` + child + `}],"hosts":[{"name":"node"}],"shardsCount":2}`
}

// managed are managed resources, with manifests.
func managed(namespace string) string {
	return `[{"group":"argoproj.io","kind":"Application","namespace":"` + namespace + `","name":"child",` +
		`"liveState":"{\"kind\":\"Application\",\"metadata\":{\"namespace\":\"argocd\"}}","resourceVersion":"1"},` +
		`{"kind":"ConfigMap","namespace":"argocd","name":"a","liveState":"{\"a\":\"<b>\"}"}]`
}

func pack(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

func unpack(t *testing.T, value string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(value))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// expectValue reads a value.
func (c *caller) expectValue(t *testing.T) string {
	t.Helper()
	line, err := c.answers.ReadString('\n')
	require.NoError(t, err)
	length, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "$")))
	require.NoError(t, err, line)
	value := make([]byte, length+2)
	_, err = io.ReadFull(c.answers, value)
	require.NoError(t, err)
	return strings.TrimSuffix(string(value), "\r\n")
}

// Applications among an application's resources are named as the hub shows them, for the UI to link to, and nothing else is.
func TestChildApplicationsAreNamedAsOnTheHub(t *testing.T) {
	spoke := redistest.Start(t)
	client := redis.Access{Address: spoke.Address}.Client()
	defer client.Close()
	dial := serve(t, redis.Options{
		Access: redis.Access{Address: spoke.Address},
		ToHub:  func() argocd.Move { return argocd.Move{From: "argocd", To: "berlin"} },
	})
	c := dial(t).sendHello(t)
	shows := func(key, value string) string {
		require.NoError(t, client.Set(t.Context(), key, value, 0).Err())
		c.send(t, "GET "+key+"\r\n")
		return c.expectValue(t)
	}
	for key, text := range map[string]func(string) string{
		"app|resources-tree|parent|1.8.3": tree, "app|resources-tree|parent|1|1.8.3": tree, "app|managed-resources|parent|1.8.3": managed,
	} {
		require.JSONEq(t, text("berlin"), shows(key, text("argocd")), key)
		require.JSONEq(t, text("berlin"), unpack(t, shows(key+".gz", pack(t, text("argocd")))), key)
		require.True(t, json.Valid([]byte(text("team"))))
		for _, same := range []string{text("team"), pack(t, text("team"))} {
			require.Equal(t, same, shows(key, same), "what has none of them is passed on as it is")
		}
	}
	for _, value := range []string{
		"", "[]", "a\r\nb", "{", `{"nodes":{"kind":"Application"}}`, `["kind":"Application"]`, `{"nodes":[["kind":"Application"]]}`, "\x1f\x8b nothing",
		pack(t, tree("argocd"))[:40], strings.Repeat("x", 40<<20), pack(t, tree("argocd")+strings.Repeat(" ", 40<<20)),
	} {
		require.Equal(t, value, shows("app|resources-tree|odd|1.8.3", value), "%.50q", value)
	}
}

// All that Redis says otherwise is passed on too, in its order.
func TestOtherRepliesAreNotRewritten(t *testing.T) {
	spoke := redistest.Start(t)
	client := redis.Access{Address: spoke.Address}.Client()
	defer client.Close()
	const key = "app|resources-tree|parent|1.8.3"
	require.NoError(t, client.Set(t.Context(), key, tree("argocd"), 0).Err())
	c := serve(t, redis.Options{
		Access: redis.Access{Address: spoke.Address},
		ToHub:  func() argocd.Move { return argocd.Move{From: "argocd", To: "berlin"} },
	})(t).sendHello(t)
	c.send(t, "CLIENT TRACKING ON BCAST PREFIX app|\r\nPING\r\nGET app|resources-tree|none|1\r\nGET "+key+"\r\nPSUBSCRIBE app|managed-resources|*\r\n")
	c.expect(t, "+OK", "+PONG", "_")
	require.JSONEq(t, tree("berlin"), c.expectValue(t))
	c.expect(t, ">3", "$10", "psubscribe", "$23", "app|managed-resources|*", ":1")
	require.NoError(t, client.Set(t.Context(), key, "another", 0).Err())
	c.expect(t, ">2", "$10", "invalidate", "*1", "$31", key)
	c.send(t, "GET "+key+"\r\nKEYS *\r\n")
	c.expect(t, "$7", "another")
	require.Contains(t, c.expectClosed(t), "-NOPERM ")
}
