package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
)

// decoded is a type with what peers' types have.
type decoded struct {
	Spec json.RawMessage   `json:"spec"`
	Name string            `json:"name"`
	Data map[string]string `json:"data"`
}

func TestPlainDocumentIsDecoded(t *testing.T) {
	t.Parallel()
	var d decoded
	require.NoError(t, strictjson.Unmarshal([]byte(` {"name": "a\u002fb", "spec": {"a": 1.50, "A": [{"a": 1}, {"a": 2}], "b": {"a": "}\\\""}}, "data": {"x": "", "unexpected end of JSON input": "{"}, "newer": {"x": [[]]}} `), &d))
	require.Equal(t, "a/b", d.Name)
	require.JSONEq(t, `{"a":1.50,"A":[{"a":1},{"a":2}],"b":{"a":"}\\\""}}`, string(d.Spec))
	require.Equal(t, map[string]string{"x": "", "unexpected end of JSON input": "{"}, d.Data, "keys of maps differ by their case")
	require.NoError(t, strictjson.Unmarshal([]byte(`{"name":"é","é":1,"É":2}`), &d))
	require.Equal(t, "é", d.Name)
}

// A field by another case is no field of ours: Kubernetes passes it over too.
func TestFieldsAreToldApartByCase(t *testing.T) {
	t.Parallel()
	d := decoded{Name: "before"}
	require.NoError(t, strictjson.Unmarshal([]byte(`{"Name":"a","NAME":"b","ſpec":{},"Spec":{}}`), &d))
	require.Equal(t, decoded{Name: "before"}, d)
}

func TestAmbiguousDocumentIsRefused(t *testing.T) {
	t.Parallel()
	many := make([]string, 0, 101)
	for i := range 100 {
		many = append(many, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	for document, want := range map[string]string{
		``:                                "unexpected end of JSON input",
		`x`:                               "invalid character",
		`{}{}`:                            "after top-level value",
		`{} x`:                            "after top-level value",
		`{"name":"a"`:                     "unexpected end of JSON input",
		`{"name":"a","name":"b"}`:         `it has the key "name" twice in one object`,
		`{"name":"a","n\u0061me":"b"}`:    `it has the key "name" twice in one object`,
		`{"a/b":1,"a\u002fb":2}`:          `it has the key "a/b" twice in one object`,
		`{"a/b":1,"a\/b":2}`:              `it has the key "a/b" twice in one object`,
		"{\"\xff\":1,\"\xfe\":2}":         `twice in one object`,
		`{"spec":{"a":{"b":1,"b":2}}}`:    `it has the key "b" twice in one object`,
		`{"spec":[{"b":[],"b":2}]}`:       `it has the key "b" twice in one object`,
		`{"newer":{"b":1,"b":2}}`:         `it has the key "b" twice in one object`,
		`{"a":{"x":"\\","y":"\""},"a":1}`: `it has the key "a" twice in one object`,
		`{` + strings.Join(append(many, `"k7":0`), ",") + `}`:         `it has the key "k7" twice in one object`,
		strings.Repeat(`[`, 257) + strings.Repeat(`]`, 257):           "it nests more than 256 deep",
		strings.Repeat(`{"a":`, 257) + "1" + strings.Repeat(`}`, 257): "it nests more than 256 deep",
		`{"name":7}`: "cannot unmarshal number",
	} {
		require.ErrorContains(t, strictjson.Unmarshal([]byte(document), new(decoded)), want, document)
	}
	require.NoError(t, strictjson.Check([]byte(strings.Repeat(`[`, 256)+strings.Repeat(`]`, 256))))
	require.NoError(t, strictjson.Check([]byte(`{`+strings.Join(many, ",")+`}`)))
	require.Less(t, len(strictjson.Check([]byte(`{"`+strings.Repeat("x", 4096)+`":1,"`+strings.Repeat("x", 4096)+`":1}`)).Error()), 200)
}

// What passes has one meaning: any decoder that takes the first, the last or no equal key reads the same.
func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","spec":{"a":[1,{"b":"\u002f"}]}}`, `{"a":1,"\u0061":2}`, `[{},{"x":{}}]`, `"\\"`, `{"a":{"a":{"a":1,"b":"\"{"}}}`, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		if strictjson.Check(document) != nil {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(string(document)))
		decoder.UseNumber()
		requireNoKeyTwice(t, decoder)
	})
}

// requireNoKeyTwice walks a value by the standard library's tokens.
func requireNoKeyTwice(t *testing.T, d *json.Decoder) {
	t.Helper()
	token, err := d.Token()
	require.NoError(t, err)
	keys := make(map[string]bool)
	for _, ok := token.(json.Delim); ok && d.More(); {
		if token == json.Delim('{') {
			key, err := d.Token()
			require.NoError(t, err)
			require.False(t, keys[key.(string)], "key %q", key)
			keys[key.(string)] = true
		}
		requireNoKeyTwice(t, d)
	}
	if _, ok := token.(json.Delim); ok {
		_, err = d.Token()
		require.NoError(t, err)
	}
}
