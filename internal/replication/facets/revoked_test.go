package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// A credential that an agent should not have any more was withdrawn if it is still on the hub, and may be gone by accident if it
// is not.
func TestCredentialAccessRevoked(t *testing.T) {
	t.Parallel()
	selector, err := facets.ParseSelector("shared=yes")
	require.NoError(t, err)
	labelled := func(o argocd.Object, label, value string) argocd.Object {
		o.Labels[label] = value
		return o
	}
	secret := func(project string) argocd.Object {
		return labelled(aSecret("repo", "repository", project), "shared", "yes")
	}
	project := teamProject("team", "paris")
	project.Labels = map[string]string{"shared": "yes"}
	for name, c := range map[string]struct {
		now argocd.Object
		uid string
		is  bool
	}{
		"its project is gone":                      {secret("another"), "hub-repo", false},
		"its project is not selected":              {secret("unselected"), "hub-repo", false},
		"its project is for others":                {secret("team"), "hub-repo", true},
		"it is of no project":                      {secret(""), "hub-repo", true},
		"it is used for something else":            {labelled(secret("team"), argocd.LabelSecretType, "repo-creds"), "hub-repo", true},
		"it is to be ignored":                      {labelled(secret("team"), argocd.LabelIgnore, "true"), "hub-repo", true},
		"it is not selected":                       {aSecret("repo", "repository", "team"), "hub-repo", false},
		"it is another":                            {secret("team"), "gone", false},
		"the replica object does not say of which": {secret("team"), "", false},
		"it is gone, and another's is not":         {labelled(aSecret("other", "repository", "team"), "shared", "yes"), "hub-repo", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed, func(hub, _ *facets.Options) { hub.Selector = selector })
			p.onHub("AppProject", project)
			p.onHub("AppProject", teamProject("unselected", "paris"))
			p.onHub("Secret", c.now)
			origin := p.here.Sources[facets.Repository]
			require.False(t, p.isOffered(facets.Repository, "repo"))
			require.Equal(t, c.is, origin.AccessRevoked("repo", c.uid))
		})
	}
}
