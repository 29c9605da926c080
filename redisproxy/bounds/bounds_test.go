package bounds_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/bounds"
)

// zip returns a text so many times over, compressed.
func zip(tb testing.TB, text string, count int) []byte {
	tb.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range count {
		_, err := w.Write([]byte(text))
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	return packed.Bytes()
}

// A tree of a few KiB that inflates to gigabytes, or decodes to hundreds of millions of objects, would end argocd-server.
func TestBombIsRefusedWithoutInflatingIt(t *testing.T) {
	limits := bounds.Limits{Size: 4 << 20, Memory: 64 << 20}
	members := bytes.Repeat(zip(t, strings.Repeat(" ", 1<<20), 1), 8) // gzip reads one member after the other
	nodes := zip(t, strings.Repeat("[],", 1<<10), 1<<10)
	for name, c := range map[string]struct {
		value      []byte
		compressed bool
		want       string
	}{
		"bytes":             {zip(t, strings.Repeat("x", 1<<20), 8), true, "inflate to more than 4 MiB: raise --max-value-size"},
		"bytes in a string": {zip(t, `"`+strings.Repeat("[", 1<<10)+`",`, 8<<10), true, "--max-value-size"},
		"many members":      {members, true, "--max-value-size"},
		"empty arrays":      {nodes, true, "more than 64 MiB of memory: raise --max-value-memory"},
		"nested objects":    {zip(t, strings.Repeat("{", 1<<10), 1<<11), true, "--max-value-memory"},
		"plain nulls":       {[]byte("[" + strings.Repeat("null,", 1<<19)), false, "--max-value-memory"},
		"before rubbish":    {nodes[:len(nodes)-9], true, "--max-value-memory"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := bounds.Check(c.value, c.compressed, limits)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, bounds.ErrTooLarge)
			require.ErrorContains(t, err, c.want)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "nothing of it is kept")
		})
	}
}

func TestValueWithinTheLimitsPasses(t *testing.T) {
	limits := bounds.Limits{Size: 1 << 20, Memory: 2 << 20}
	for name, value := range map[string][]byte{
		"an empty one":          {},
		"no gzip":               []byte("tree"),
		"one that is cut":       zip(t, "[1,2]", 1)[:12],
		"commas in strings":     zip(t, `["`+strings.Repeat(`,{\"[\\`, 1000)+`"]`, 1),
		"exactly so many bytes": zip(t, strings.Repeat("x", 1<<10), 1<<10),
	} {
		require.NoError(t, bounds.Check(value, true, limits), name)
	}
	require.NoError(t, bounds.Check(zip(t, strings.Repeat("x", 1<<20), 8), false, limits), "argocd-server inflates nothing by that key")
}

// node is one as Argo CD's controller writes it, of a Pod.
const node = `{"version":"v1","kind":"Pod","namespace":"guestbook","name":"guestbook-ui-85985d774c-8lvmq","uid":"0e8b1a8c-4c9a-4f4e-9f0e-2f3f1c9f6c11",
"parentRefs":[{"group":"apps","kind":"ReplicaSet","namespace":"guestbook","name":"guestbook-ui-85985d774c","uid":"5f2f1c9f-4c9a-4f4e-9f0e-0e8b1a8c6c11"}],
"info":[{"name":"Status Reason","value":"Running"},{"name":"Node","value":"node-1"},{"name":"Containers","value":"1/1"}],
"networkingInfo":{"labels":{"app":"guestbook-ui","pod-template-hash":"85985d774c"}},"resourceVersion":"123456",
"images":["gcr.io/google-samples/gb-frontend:v5"],"health":{"status":"Healthy"},"createdAt":"2026-01-01T00:00:00Z"}`

// What a large honest application has passes the defaults: 10,000 Pods, and the manifests of 10,000 objects.
func TestLargeApplicationPasses(t *testing.T) {
	defaults := bounds.Limits{}.Complete()
	tree := `{"nodes":[` + strings.Repeat(node+",", 9_999) + node + `]}`
	require.NoError(t, bounds.Check(zip(t, tree, 1), true, defaults))
	quoted, err := json.Marshal(strings.Repeat(node, 4)) // 3 kB
	require.NoError(t, err)
	diff := `{"group":"apps","kind":"Deployment","namespace":"guestbook","name":"guestbook-ui","targetState":` + string(quoted) +
		`,"liveState":` + string(quoted) + `,"normalizedLiveState":` + string(quoted) + `,"resourceVersion":"123456"}`
	require.NoError(t, bounds.Check(zip(t, "["+strings.Repeat(diff+",", 9_999)+diff+"]", 1), true, defaults))
}
