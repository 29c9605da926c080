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
	limits := bounds.Limits{Bytes: 4 << 20, Nodes: 1 << 20}
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
		"nodes":             {nodes, true, "more than 1048576 JSON nodes: raise --max-value-nodes"},
		"nested nodes":      {zip(t, strings.Repeat("{", 1<<10), 1<<11), true, "--max-value-nodes"},
		"plain nodes":       {bytes.Repeat([]byte("1,"), 2<<20), false, "--max-value-nodes"},
		"before rubbish":    {nodes[:len(nodes)-9], true, "--max-value-nodes"},
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
	limits := bounds.Limits{Bytes: 1 << 20, Nodes: 100}
	for name, value := range map[string][]byte{
		"an empty one":          {},
		"no gzip":               []byte("tree"),
		"one that is cut":       zip(t, "[1,2]", 1)[:12],
		"commas in strings":     zip(t, `["`+strings.Repeat(`,{\"[\\`, 1000)+`"]`, 1),
		"exactly so many nodes": zip(t, "["+strings.Repeat("0,", 99)+"0]", 1),
		"exactly so many bytes": zip(t, strings.Repeat("x", 1<<10), 1<<10),
	} {
		require.NoError(t, bounds.Check(value, true, limits), name)
	}
	require.NoError(t, bounds.Check(zip(t, strings.Repeat("x", 1<<20), 8), false, limits), "argocd-server inflates nothing by that key")
}

// nodes counts objects, arrays, and their members, as the decoder sees them.
func nodes(value any) int64 {
	count := int64(0)
	switch v := value.(type) {
	case []any:
		count = max(1, int64(len(v)))
		for _, one := range v {
			count += nodes(one)
		}
	case map[string]any:
		count = max(1, int64(len(v)))
		for _, one := range v {
			count += nodes(one)
		}
	}
	return count
}

// What Go's decoder, which is argocd-server's, makes of a text has no more nodes than were counted.
func FuzzCheckCountsWhatIsDecoded(f *testing.F) {
	for _, text := range []string{`[]`, `{"a":[1,{"b":",[{"}],"\"":[[],[]]}`, `"\\",[`, `[1,2`, `{"a":1,"a":2}`, "[\"\u2028\\u002c\"]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			return
		}
		want := nodes(value)
		if want > 0 {
			require.Error(t, bounds.Check([]byte(text), false, bounds.Limits{Bytes: 1 << 30, Nodes: want - 1}))
		}
	})
}
