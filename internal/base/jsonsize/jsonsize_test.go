package jsonsize_test

import (
	"encoding/json"
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
