package facets

import (
	"iter"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

// Hub is the hub as one agent may see it.
type Hub struct {
	Applications
	Agent   string
	Mapping mapping.Mapping
}

// Spoke is the spoke as its agent sees it.
type Spoke struct {
	Applications
	Mapping mapping.Mapping
}

// get returns the hub's application under a key, if it is this agent's.
func (h Hub) get(key converge.Key) (*argocd.App, bool) {
	app, ok := h.Store.Get(h.Mapping.ToHub(h.Agent, key))
	if !ok {
		return nil, false
	}
	agent, _ := h.Mapping.FromHub(app.Name)
	return app, agent == h.Agent
}

// all yields, by their keys, the states of this agent's applications that are not zero.
func (h Hub) all(state func(*argocd.App) converge.State) iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for app := range h.Store.Group(h.Agent) {
			_, key := h.Mapping.FromHub(app.Name)
			if s := state(app); s != (converge.State{}) && !yield(key, s) {
				return
			}
		}
	}
}

// held returns the state of the application under a key, zero if there is none or if it is not this agent's.
func (h Hub) held(key converge.Key, state func(*argocd.App) converge.State) converge.State {
	app, ok := h.get(key)
	if !ok {
		return converge.State{}
	}
	return state(app)
}

// get returns the spoke's application under a key.
func (s Spoke) get(key converge.Key) (*argocd.App, bool) {
	return s.Store.Get(s.Mapping.ToSpoke(key))
}

// all yields, by their keys, the states of the spoke's applications that are not zero.
func (s Spoke) all(state func(*argocd.App) converge.State) iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for app := range s.Store.Group("") {
			if st := state(app); st != (converge.State{}) && !yield(s.Mapping.FromSpoke(app.Name), st) {
				return
			}
		}
	}
}

// held returns the state of the application under a key, zero if there is none.
func (s Spoke) held(key converge.Key, state func(*argocd.App) converge.State) converge.State {
	app, ok := s.get(key)
	if !ok {
		return converge.State{}
	}
	return state(app)
}
