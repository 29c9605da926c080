package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// Components of Argo CD, as its installations label them.
const (
	server         = "server"
	controller     = "application-controller"
	applicationSet = "applicationset-controller"
	repoServer     = "repo-server"
	redis          = "redis"
)

// decode reads an object of a kind that Kubernetes itself does not have.
func decode(o *unstructured.Unstructured, into any) error {
	text, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// components is what of Argo CD belongs on a cluster, and what does not.
type components struct {
	required []string
	// forbidden are those that may not run, each with why and what to do.
	forbidden map[string]string
}

// onHub is what belongs on a hub with these settings, and who reads Redis there.
func onHub(params map[string]string) (components, reader) {
	return hubComponents(params[manifest.HubByDestination] == "true"), reader{service: ca.RedisProxyService, name: "redisproxy", redis: params[manifest.HubRedis]}
}

// onSpoke returns the same for the cluster of an agent in a mode.
func onSpoke(mode string) func(params map[string]string) (components, reader) {
	return func(params map[string]string) (components, reader) {
		autonomous := string(facets.Autonomous)
		return spokeComponents(mode == autonomous || params[manifest.ModeKey] == autonomous), reader{name: manifest.ServiceAccount, redis: params[manifest.Redis]}
	}
}

// hubComponents are those of a hub.
func hubComponents(byDestination bool) components {
	c := components{required: []string{server, repoServer, redis}, forbidden: map[string]string{}}
	if !byDestination {
		c.forbidden[controller] = "it would work on agents' Applications, which the controllers on their clusters do: remove it, or use mapping by destination " +
			"(principal.destination-based-mapping) where the hub has Applications of its own"
	}
	return c
}

// spokeComponents are those of an agent's cluster.
func spokeComponents(autonomous bool) components {
	c := components{required: []string{controller, repoServer, redis}, forbidden: map[string]string{}}
	if !autonomous {
		c.forbidden[server] = "people would change there what the hub changes back: remove it, and use that of the hub"
		c.forbidden[applicationSet] = "it would make Applications that the hub does not know, or make again what the hub deletes: remove it, and have ApplicationSets on the hub"
	}
	return c
}

// check looks what of Argo CD runs in the namespace. Some of a cluster's Redis may be elsewhere: external says so.
func (w components) check(c *cluster.Client, all []cluster.Workload, external bool) checks.Check {
	name := "components of Argo CD on " + c.String()
	var there, problems []string
	found := make(map[string]*cluster.Workload)
	for _, component := range []string{server, controller, applicationSet, repoServer, redis} {
		at := slices.IndexFunc(all, func(w cluster.Workload) bool { return w.Is(component) && w.Wanted > 0 })
		if at >= 0 {
			found[component], there = &all[at], append(there, component)
		}
	}
	if len(there) == 0 {
		return checks.Skip(name, fmt.Sprintf("no Deployment and no StatefulSet of Argo CD is in namespace %s: is Argo CD there?", c.Namespace))
	}
	for _, component := range w.required {
		switch one := found[component]; {
		case one == nil && component == redis && external:
		case one == nil:
			problems = append(problems, fmt.Sprintf("%s is not there: install it in namespace %s", component, c.Namespace))
		case one.Ready == 0:
			problems = append(problems, fmt.Sprintf("%s: no Pod of it is ready: %s", one, c.Command("describe %s %s -n %s", strings.ToLower(one.Kind), one.Name, c.Namespace)))
		}
	}
	for _, component := range there {
		if why, forbidden := w.forbidden[component]; forbidden {
			problems = append(problems, fmt.Sprintf("%s: %s", found[component], why))
		}
	}
	return checks.Of(name, strings.Join(there, ", "), problems...)
}

// workloads looks at what is deployed on a cluster: which components of Argo CD run, and whether Redis lets in who reads it.
func workloads(ctx context.Context, c *cluster.Client, of func(params map[string]string) (components, reader)) ([]checks.Check, error) {
	const name = "what is deployed"
	lacks, err := c.Lacks(ctx, authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments"},
		authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "statefulsets"},
		authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Name: manifest.ParamsConfigMap})
	if err != nil {
		return nil, err
	}
	if len(lacks) > 0 {
		return []checks.Check{checks.Forbidden(name+" on "+c.String(), c.String(), c.ContextFlag(), lacks...)}, nil
	}
	params, err := c.ConfigMapData(ctx, manifest.ParamsConfigMap)
	if err != nil {
		return nil, err
	}
	all, err := c.Workloads(ctx)
	if err != nil {
		return nil, err
	}
	wanted, who := of(params)
	made, err := who.admitted(ctx, c, all)
	return []checks.Check{wanted.check(c, all, who.redis != "" && !strings.HasPrefix(who.redis, "argocd-redis")), made}, err
}
