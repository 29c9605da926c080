package argocd

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
)

// anyServer denies, as the server of a project's destination, every cluster by every name and address. Argo CD takes "!*" for a
// mistake, and this not.
const anyServer = "!**"

// closeTo adds to a project's spec the denial of a namespace in every cluster: one cluster may have several names and addresses. In
// Argo CD a denial wins over all permissions (argo-cd, AppProject.isDestinationMatched), also over those of global projects, and this
// one permits nothing by itself.
func closeTo(spec map[string]any, namespace string) error {
	destinations, isList := spec["destinations"].([]any)
	if !isList && spec["destinations"] != nil {
		return errors.New("the project's spec: its destinations are no list")
	}
	var open []any
	for _, d := range destinations {
		if item, ok := d.(map[string]any); !ok || item["server"] != anyServer || item["namespace"] != namespace {
			open = append(open, d)
		}
	}
	spec["destinations"] = append(open, map[string]any{"server": anyServer, "namespace": namespace})
	return nil
}

// PermitsOnSpoke reports whether a project lets applications deploy into a namespace of the cluster that Argo CD runs in. One that
// cannot be read, or only with too much work, is taken to.
func (r *Record) PermitsOnSpoke(namespace string) bool {
	p, err := r.project()
	if err != nil {
		return true
	}
	c, permitted := inClusterNames(), false
	for _, d := range p.destinations {
		switch permits, denies := d.judge(c, namespace); {
		case denies:
			return c.work.Spent()
		case permits:
			permitted = true
		}
	}
	return permitted || c.work.Spent()
}

// judge returns whether a destination permits a namespace of a cluster, and whether it denies that whatever else permits it (argo-cd,
// AppProject.isDestinationMatched).
func (d destination) judge(c clusterNames, namespace string) (permits, denies bool) {
	name, server := d.name.matches(c.work, c.name), d.server.matches(c.work, c.server) || d.server.text == "*"
	within := d.namespace.matches(c.work, namespace) || d.namespace.text == "*"
	switch {
	case (name || server) && within:
		return true, false
	case !name && d.name.denies, !server && d.server.denies && within, !within && d.namespace.denies && server:
		return false, true
	}
	return false, false
}

// Target is what an application's spec says of where it deploys, and by whose leave.
type Target struct {
	Namespace, Project string
}

// ReadTarget returns that of a spec.
func ReadTarget(spec json.RawMessage) (Target, error) {
	var known struct {
		Destination struct {
			Namespace string `json:"namespace"`
		} `json:"destination"`
		Project string `json:"project"`
	}
	if present(spec) != nil {
		if err := strictjson.Fields(spec, &known); err != nil {
			return Target{}, fmt.Errorf("spec: %w", err)
		}
	}
	if known.Project == "" {
		known.Project = DefaultProject
	}
	return Target{known.Destination.Namespace, known.Project}, nil
}
