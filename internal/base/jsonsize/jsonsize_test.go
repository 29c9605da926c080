package jsonsize_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
)

func TestDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	require.NoError(t, jsonsize.Check([]byte(`{"a":"`+strings.Repeat(",", 1_000_000)+`"}`)), "texts have no values in them")
	require.ErrorContains(t, jsonsize.Check([]byte(`"`+strings.Repeat("a", 3<<19)+`"`)), "bytes of JSON")
	require.ErrorContains(t, jsonsize.Check([]byte("["+strings.Repeat("[],", 200_000)+"[]]")), "JSON values")
	require.ErrorContains(t, jsonsize.Check([]byte("["+strings.Repeat("1,", 400_000)+"1]")), "JSON values")
}

// count counts what is in a decoded document.
func count(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += count(item)
		}
	case map[string]any:
		for _, item := range v {
			n += 1 + count(item)
		}
	}
	return n
}

// Whatever a document is, decoding it makes no more values than were counted before.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{`{}`, `[]`, `{"a":[1,{"b\"":null},"\\"]}`, `"a,b"`, `[[],[]]`, `{"a":1,"a":{"b":2}}`, `["\\\"",[]]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		values := jsonsize.Values(document)
		require.LessOrEqual(t, jsonsize.Memory(document), int64(jsonsize.MaxMemory))
		var v any
		if json.Unmarshal(document, &v) == nil {
			require.LessOrEqual(t, count(v), values+1)
		}
	})
}

// heapOf returns how many bytes of the heap a document takes once it is decoded.
func heapOf(t *testing.T, document string) int64 {
	t.Helper()
	var before, after runtime.MemStats
	var into any
	runtime.GC()
	runtime.ReadMemStats(&before)
	require.NoError(t, json.Unmarshal([]byte(document), &into))
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(into)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// Nothing that a peer may write takes more memory than was counted. It runs alone: others' memory would count.
func TestDecodedDocumentTakesNoMoreThanCounted(t *testing.T) {
	const n = 20_000
	var keys strings.Builder
	for i := range n {
		fmt.Fprintf(&keys, `"%d":1,`, i)
	}
	documents := map[string]string{
		"keys":     "{" + keys.String() + `"":0}`,
		"no UTF-8": `"` + strings.Repeat("\xff", 20*n) + `"`,
	}
	for _, each := range []string{
		`null`, `""`, `"a"`, `0`, `[]`, `[1]`, `[[[[1]]]]`, `{}`, `{"":1}`, `{"":{"":{"":{"":1}}}}`, `{"a":"a","b":"b","c":[]}`,
		`{"a":0,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`,
	} {
		documents[each] = "[" + strings.Repeat(each+",", n-1) + each + "]"
	}
	for name, document := range documents {
		var counter jsonsize.Counter
		_, err := counter.Write([]byte(document))
		require.NoError(t, err)
		require.LessOrEqual(t, heapOf(t, document), counter.Memory(jsonsize.ElementOfTree)+16<<10, name)
	}
}

// A document in pieces counts as it does as a whole.
func TestPiecesCountAsTheWhole(t *testing.T) {
	t.Parallel()
	const document = `{"a":[1,{"b\"":null},"\\"],"c":"\u00e4ö[{,"}`
	var whole, pieces jsonsize.Counter
	_, _ = whole.Write([]byte(document))
	for i := range len(document) {
		_, _ = pieces.Write([]byte(document[i : i+1]))
	}
	require.Equal(t, whole, pieces)
	require.EqualValues(t, len(document), whole.Bytes())
}
