package argocd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Argo CD writes the application's own sources into each operation. Whatever else an operation brings is of its own.
func TestOwnSourcesOfAnOperation(t *testing.T) {
	t.Parallel()
	const one = `{"source":{"repoURL":"https://git","path":"a","helm":{"releaseName":""},"directory":{"recurse":false}}}`
	const two = `{"sources":[{"repoURL":"https://git","path":"a"},{"repoURL":"https://charts","chart":"b","targetRevision":"1"}]}`
	const hydrated = `{"sourceHydrator":{"drySource":{"repoURL":"https://git","path":"dry","targetRevision":"main"},"syncSource":{"targetBranch":"env","path":"wet"}}}`
	for name, c := range map[string]struct{ spec, operation, want string }{
		"a sync":                         {one, `{"sync":{"revision":"abc","prune":true}}`, ""},
		"a refusal to say anything":      {one, `{}`, ""},
		"its source":                     {one, `{"sync":{"source":{"repoURL":"https://git","path":"a","targetRevision":""}}}`, ""},
		"nothing":                        {one, `{"sync":{"source":null,"sources":[],"manifests":[]}}`, ""},
		"its sources":                    {two, `{"sync":{"revisions":["x","1"],"sources":[{"repoURL":"https://git","path":"a","helm":{}},{"repoURL":"https://charts","chart":"b","targetRevision":"1"}]}}`, ""},
		"its first source":               {two, `{"sync":{"source":{"repoURL":"https://git","path":"a"}}}`, ""},
		"where it is hydrated to":        {hydrated, `{"sync":{"source":{"repoURL":"https://git","path":"wet","targetRevision":"env"}}}`, ""},
		"manifests":                      {one, `{"sync":{"manifests":["{}"]}}`, "sync.manifests"},
		"manifests by an escape":         {one, `{"sync":{"manifest\u0073":["{}"]}}`, "sync.manifests"},
		"manifests that are no list":     {one, `{"sync":{"manifests":{"a":"b"}}}`, "sync.manifests"},
		"another repository":             {one, `{"sync":{"source":{"repoURL":"https://evil","path":"a"}}}`, "sync.source"},
		"another path":                   {one, `{"sync":{"source":{"repoURL":"https://git","path":"b"}}}`, "sync.source"},
		"parameters":                     {one, `{"sync":{"source":{"repoURL":"https://git","path":"a","helm":{"values":"x"}}}}`, "sync.source"},
		"a field of a newer release":     {one, `{"sync":{"source":{"repoURL":"https://git","path":"a","new":1}}}`, "sync.source"},
		"sources for one":                {one, `{"sync":{"sources":[{"repoURL":"https://git","path":"a"}]}}`, "sync.sources"},
		"one of two sources":             {two, `{"sync":{"sources":[{"repoURL":"https://git","path":"a"}]}}`, "sync.sources"},
		"sources in another order":       {two, `{"sync":{"sources":[{"repoURL":"https://charts","chart":"b","targetRevision":"1"},{"repoURL":"https://git","path":"a"}]}}`, "sync.sources"},
		"a source that is no object":     {one, `{"sync":{"source":["x"]}}`, "sync.source"},
		"what is hydrated, from its dry": {hydrated, `{"sync":{"source":{"repoURL":"https://git","path":"dry","targetRevision":"main"}}}`, "sync.source"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			field, err := argocd.OwnSources(json.RawMessage(c.operation), json.RawMessage(c.spec))
			require.NoError(t, err)
			require.Equal(t, c.want, field)
		})
	}
	for _, bad := range [][2]string{{`[]`, one}, {`{}`, `[]`}} {
		_, err := argocd.OwnSources(json.RawMessage(bad[0]), json.RawMessage(bad[1]))
		require.Error(t, err)
	}
}
