package e2e_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// differences returns, by Application, what is not as it should be.
func (c *chaos) differences() map[string][]string {
	out := make(map[string][]string)
	find := func(key, format string, args ...any) { out[key] = append(out[key], fmt.Sprintf(format, args...)) }
	for _, key := range c.history.keys() {
		agent, name, _ := strings.Cut(key, "/")
		hub, spoke := c.history.at(hubSide, key), c.history.at(agent, key)
		switch {
		case name == bystander:
			if hub != nil || spoke == nil || spoke.GetAnnotations()[sourceUID] != "" {
				find(key, "it is no longer the spoke's own")
			}
		case hub == nil:
			find(key, "it is on the spoke only")
		case spoke == nil:
			find(key, "it is on the hub only")
		default:
			compare(agent, hub, spoke, func(format string, args ...any) { find(key, format, args...) })
		}
	}
	for _, p := range c.people {
		p.compare(c.history.at(hubSide, p.key), func(format string, args ...any) { find(p.key, format, args...) })
	}
	return out
}

const (
	sourceUID    = "argocd.argoproj.io/source-uid"
	principalUID = "argocd.argoproj.io/principal-uid"
	ownPrefix    = "argocd-agent.argoproj-labs.io/"
)

// compare finds what differs between an Application on the hub and on the spoke of its agent, and what is left over on either.
func compare(agent string, hub, spoke *unstructured.Unstructured, find func(format string, args ...any)) {
	if uid := spoke.GetAnnotations()[sourceUID]; uid != string(hub.GetUID()) {
		find("it came from %q, and is %s on the hub", uid, hub.GetUID())
	}
	for _, part := range []struct {
		name       string
		hub, spoke any
	}{
		{"spec", rewritten(hub), spoke.Object["spec"]},
		{"labels", hub.GetLabels(), spoke.GetLabels()},
		{"annotations", sharedAnnotations(hub), sharedAnnotations(spoke)},
		{"finalizers", hub.GetFinalizers(), spoke.GetFinalizers()},
		{"status", hub.Object["status"], displayed(agent, spoke.Object["status"])},
	} {
		if !reflect.DeepEqual(part.hub, part.spoke) {
			find("%s differs:\n  hub   %v\n  spoke %v", part.name, part.hub, part.spoke)
		}
	}
	for side, object := range map[string]*unstructured.Unstructured{"hub": hub, "spoke": spoke} {
		if operation, there := object.Object["operation"]; there {
			find("an operation is left over on the %s: %v", side, operation)
		}
		if object.GetDeletionTimestamp() != nil {
			find("it is stuck in deletion on the %s, finalizers %v", side, object.GetFinalizers())
		}
		for _, a := range append(requests(), ownPrefix+"intent") {
			if value, there := object.GetAnnotations()[a]; there {
				find("annotation %s=%s is left over on the %s", a, value, side)
			}
		}
	}
}

// requests are the annotations that go when what they ask for is done.
func requests() []string { return []string{"argocd.argoproj.io/refresh", "argocd.argoproj.io/hydrate"} }

// rewritten returns the spec of a hub's Application as its spoke should have it.
func rewritten(hub *unstructured.Unstructured) any {
	hub = hub.DeepCopy()
	unstructured.RemoveNestedField(hub.Object, "spec", "destination", "server")
	set(hub, "in-cluster", "spec", "destination", "name")
	return hub.Object["spec"]
}

// sharedAnnotations returns those annotations that do not belong to one side only.
func sharedAnnotations(object *unstructured.Unstructured) map[string]string {
	all := maps.Clone(object.GetAnnotations())
	maps.DeleteFunc(all, func(k, _ string) bool {
		return k == sourceUID || k == principalUID || strings.HasPrefix(k, ownPrefix) || slices.Contains(requests(), k)
	})
	if len(all) == 0 {
		return nil
	}
	return all
}

// compare finds what is not on the hub as the person left it there: nobody else may change that.
func (p *person) compare(hub *unstructured.Unstructured, find func(format string, args ...any)) {
	switch {
	case p.undecided:
	case p.want == nil && hub == nil:
	case p.want == nil:
		find("it was deleted on the hub, and is there")
	case hub == nil:
		find("nobody deleted it on the hub, and it is gone")
	case p.want.GetUID() != hub.GetUID():
		find("it is another one on the hub: UID %s became %s", p.want.GetUID(), hub.GetUID())
	default:
		for name, pair := range map[string][2]any{
			"spec":        {p.want.Object["spec"], hub.Object["spec"]},
			"labels":      {p.want.GetLabels(), hub.GetLabels()},
			"annotations": {sharedAnnotations(p.want), sharedAnnotations(hub)},
			"finalizers":  {p.want.GetFinalizers(), hub.GetFinalizers()},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				find("%s on the hub is not as it was left:\n  was %v\n  is  %v", name, pair[0], pair[1])
			}
		}
	}
}

// requireOneRunPerSync fails if a sync ran twice, or if one that was accepted did not run although its Application is
// still there.
func (c *chaos) requireOneRunPerSync(t *testing.T) {
	t.Helper()
	wrong := make(map[string][]string)
	c.history.mu.Lock()
	for id, runs := range c.history.runs {
		for uid, starts := range runs {
			if len(starts) > 1 {
				key := keyOf(id)
				wrong[key] = append(wrong[key], fmt.Sprintf("sync %s ran %d times on %s: %v", id, len(starts), uid, starts))
			}
		}
	}
	for id, times := range c.history.taken {
		for uid, n := range times {
			if n > 1 {
				key := keyOf(id)
				wrong[key] = append(wrong[key], fmt.Sprintf("sync %s was given to %s %d times", id, uid, n))
			}
		}
	}
	c.history.mu.Unlock()
	for _, p := range c.people {
		for _, s := range p.syncs {
			if p.want == nil || p.want.GetUID() != s.uid || c.history.ran(s.id) {
				continue
			}
			wrong[p.key] = append(wrong[p.key], fmt.Sprintf("sync %s was accepted %.3f and did not run",
				s.id, s.at.Sub(c.history.began).Seconds()))
		}
	}
	if len(wrong) > 0 {
		c.fail(t, wrong)
	}
}

// ran reports whether a sync was seen to run. On a spoke whose API server was away meanwhile, it may have run unseen.
func (h *history) ran(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.runs[id]) > 0
}

// keyOf returns the Application that a sync is of.
func keyOf(id string) string { return id[:strings.LastIndex(id, "/")] }
