package doctor

import (
	"context"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// ownRights is what is known of the rights of who runs doctor. They are asked for before each hop that needs some: what an API server refuses
// to a person is no fault of the hop's.
type ownRights struct {
	mu    sync.Mutex
	known map[asked][]string // what is lacking
}

// asked is a right on a cluster.
type asked struct {
	on   *cluster.Client
	what authorizationv1.ResourceAttributes
}

// lacking returns a check that was not made, and true, if the user has not the rights for it. An API server that cannot be asked for rights does not
// answer the hop either, which says so.
func (w *walk) lacking(ctx context.Context, hop string, c *cluster.Client, needs ...authorizationv1.ResourceAttributes) (checks.Check, bool) {
	var lacks []string
	for _, what := range needs {
		lacks = append(lacks, w.own.lacks(ctx, asked{c, what})...)
	}
	if lacks = slices.Compact(lacks); len(lacks) == 0 {
		return checks.Check{}, false
	}
	return checks.Forbidden(hop, c.String(), c.ContextFlag(), lacks...), true
}

func (r *ownRights) lacks(ctx context.Context, a asked) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lacks, known := r.known[a]; known {
		return lacks
	}
	lacks, err := a.on.Lacks(ctx, a.what)
	if err != nil {
		return nil
	}
	if r.known == nil {
		r.known = make(map[asked][]string)
	}
	r.known[a] = lacks
	return lacks
}

func listSecrets() authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"}
}

// secrets are the rights to get Secrets.
func secrets(names ...string) []authorizationv1.ResourceAttributes {
	all := make([]authorizationv1.ResourceAttributes, 0, len(names))
	for _, name := range names {
		all = append(all, authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Name: name})
	}
	return all
}
