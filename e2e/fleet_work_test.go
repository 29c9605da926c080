package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// worker changes some objects, on the side that they come from, and meddles with their copies on the other.
type worker struct {
	dice *rand.Rand
	hub  *lab.Cluster
	home *lab.Cluster // where the originals are
	away *lab.Cluster
	// originals and copies are selected without a name.
	originals, copies cluster.Selection
	named             func(name string) string
	make              func(w *worker, name string) *unstructured.Unstructured
	names             []string
	// serial makes changes distinct.
	serial int
	// failures are what must be expected: of two who write at once one comes too late, what is to be edited may be deleted, and
	// API servers are away.
	changes, failures int
}

// workers are all who are at work.
func (f *wholeFleet) workers(s size) []*worker {
	hub := f.lab.Hub
	same := func(name string) string { return name }
	var all []*worker
	add := func(name string, n int, w worker) {
		const share = 50 // objects for each
		for first := 0; first < n; first += share {
			one := w
			one.hub = hub
			one.dice = rand.New(rand.NewPCG(f.seed, uint64(len(all))))
			for i := first; i < min(n, first+share); i++ {
				one.names = append(one.names, fmt.Sprintf("%s-%d", name, i))
			}
			if n == 1 {
				one.names = []string{name}
			}
			all = append(all, &one)
		}
	}
	application := func(namespace, destination string) func(*worker, string) *unstructured.Unstructured {
		return func(w *worker, name string) *unstructured.Unstructured {
			object := argocd.New(argocd.Application{
				Namespace: namespace, Name: name, RepoURL: "https://git.example.com/x", Path: "x", Destination: destination, Into: name, Manual: true,
			})
			if w.dice.IntN(2) == 0 {
				w.toggleFinalizer(object)
			}
			return object
		}
	}
	managed, placed, free := f.lab.Spoke("managed"), f.lab.Spoke("placed"), f.lab.Spoke("free")
	add("app", s.applications, worker{
		home: hub, away: managed, originals: argocd.All("managed"), copies: argocd.All(lab.Namespace), named: same, make: application("managed", "managed"),
	})
	add("app", s.applications/2, worker{
		home: hub, away: placed, originals: argocd.All("team-x"), copies: argocd.All("team-x"), named: same, make: application("team-x", "placed"),
	})
	add("placed", s.applications/2, worker{
		home: hub, away: placed, originals: argocd.All(lab.Namespace), copies: argocd.All(lab.Namespace), named: same, make: application(lab.Namespace, "placed"),
	})
	add("app", s.applications, worker{
		home: free, away: hub, originals: argocd.All(lab.Namespace), copies: argocd.All("free"), named: same, make: application(lab.Namespace, "in-cluster"),
	})
	projects := project(hub, lab.Namespace, "").selection
	add("team", s.projects, worker{home: hub, away: managed, originals: projects, copies: projects, named: same, make: makeProject})
	add("own", s.projects, worker{
		home: free, away: hub, originals: projects, copies: projects, named: func(name string) string { return "free-" + name }, make: makeProject,
	})
	secrets := core(hub, "secrets", lab.Namespace, "").selection
	add("repo", s.secrets, worker{home: hub, away: managed, originals: secrets, copies: secrets, named: same, make: func(w *worker, name string) *unstructured.Unstructured {
		return makeSecret(w, name, s.projects)
	}})
	keys := core(hub, "configmaps", lab.Namespace, "").selection
	add(keysName, 1, worker{home: hub, away: managed, originals: keys, copies: keys, named: same, make: makeKeys})
	return all
}

// makeKeys makes the ConfigMap of GPG keys.
func makeKeys(w *worker, name string) *unstructured.Unstructured {
	w.serial++
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": lab.Namespace},
		"data": map[string]any{"key": fmt.Sprint("number ", w.serial)},
	}}
}

// makeProject makes a project that is for all agents.
func makeProject(w *worker, name string) *unstructured.Unstructured {
	w.serial++
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name, "namespace": lab.Namespace},
		"spec": map[string]any{
			"description": fmt.Sprint("number ", w.serial), "sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"},
			"destinations": []any{map[string]any{"name": "*", "server": "*", "namespace": "*"}},
			"roles": []any{map[string]any{"name": "reader", "policies": []any{
				"p, proj:" + name + ":reader, applications, get, " + name + "/*, allow", "p, proj:other:reader, applications, get, other/*, allow",
			}}},
		},
	}}
}

// makeSecret makes a repository of one of the projects.
func makeSecret(w *worker, name string, projects int) *unstructured.Unstructured {
	w.serial++
	content := repository(fmt.Sprintf("team-%d", w.dice.IntN(projects)))
	content["data"].(map[string]any)["password"] = base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(w.serial)))
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": content["data"],
		"metadata": map[string]any{
			"name": name, "namespace": lab.Namespace,
			"labels": map[string]any{secretType: []string{"repository", "repo-creds"}[w.dice.IntN(2)]},
		},
	}}
}

// work changes something now and then until the context ends.
func (w *worker) work(ctx context.Context) {
	for wait(ctx, time.Duration(w.dice.Int64N(int64(time.Second)))) {
		name := w.names[w.dice.IntN(len(w.names))]
		var err error
		switch n := w.dice.IntN(20); {
		case n < 11:
			err = w.edit(ctx, w.home, at(w.originals, name), name)
		case n < 12:
			err = w.delete(ctx, name)
		case n < 15:
			_, err = w.home.Of(at(w.originals, name)).Create(ctx, w.make(w, name), metav1.CreateOptions{})
		case n < 18:
			err = w.edit(ctx, w.away, at(w.copies, w.named(name)), name)
		case n < 19:
			err = w.away.Of(at(w.copies, w.named(name))).Delete(ctx, w.named(name), metav1.DeleteOptions{})
		case w.wipes():
			err = w.wipe(ctx, name)
		}
		if err != nil {
			w.failures++
		} else {
			w.changes++
		}
	}
}

// isWiped reports whether there is a copy that does not say that it is one. An agent that was down when somebody wiped it does not
// know what it is until it has seen the original again.
func isWiped(ctx context.Context, c *lab.Cluster, s cluster.Selection) (bool, error) {
	object, err := c.Of(s).Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && object.GetAnnotations()[sourceUID] == "", err
}

// delete deletes an original, unless its copy is one that somebody wiped: after a restart nobody would know what it was.
func (w *worker) delete(ctx context.Context, name string) error {
	if wiped, err := isWiped(ctx, w.away, at(w.copies, w.named(name))); err != nil || wiped && w.wipes() {
		return err
	}
	return w.home.Of(at(w.originals, name)).Delete(ctx, name, metav1.DeleteOptions{})
}

// wipes says whether annotations of copies are wiped. Others than Applications on a spoke are not adopted when they are changed
// besides.
func (w *worker) wipes() bool {
	return w.originals.Resource.Resource == "applications" && w.away != w.hub
}

// wipe wipes the annotations of a copy that has an original, by which it becomes a copy again.
func (w *worker) wipe(ctx context.Context, name string) error {
	original, err := w.home.Of(at(w.originals, name)).Get(ctx, name, metav1.GetOptions{})
	if err != nil || original.GetDeletionTimestamp() != nil {
		return err
	}
	return w.rewrite(ctx, w.away, at(w.copies, w.named(name)), wipeAnnotations)
}

// edit changes an object in one way or another.
func (w *worker) edit(ctx context.Context, c *lab.Cluster, s cluster.Selection, name string) error {
	w.serial++
	return w.rewrite(ctx, c, s, func(object *unstructured.Unstructured) {
		if c == w.away && object.GetName() == keysName && object.GetAnnotations()[sourceUID] == "" {
			return // keys that were withdrawn are no copy: what somebody writes there is the spoke's own
		}
		application := object.GetKind() == "Application"
		switch n := w.dice.IntN(7); {
		case n == 0:
			object.SetLabels(with(object.GetLabels(), "number", strconv.Itoa(w.serial)))
		case n == 1:
			object.SetAnnotations(with(object.GetAnnotations(), "example.com/number", strconv.Itoa(w.serial)))
		case n == 2 && application:
			set(object, map[string]any{"health": map[string]any{"status": "Healthy", "lastTransitionTime": time.Unix(int64(w.serial), 0).UTC().Format(time.RFC3339)}}, "status")
		case n == 3 && application:
			w.toggleFinalizer(object)
		case n == 4 && application:
			w.ask(object)
		default:
			w.renew(object, name)
		}
	})
}

// renew gives an object another content.
func (w *worker) renew(object *unstructured.Unstructured, name string) {
	fresh := w.make(w, name)
	for _, part := range []string{"spec", "data"} {
		if value, ok := fresh.Object[part]; ok {
			object.Object[part] = value
		}
	}
	if object.GetKind() == "Application" {
		set(object, strconv.Itoa(w.serial), "spec", "source", "targetRevision")
	}
}

// toggleFinalizer changes whether an Application's resources are deleted with it. Once it is being deleted, none can be added.
func (w *worker) toggleFinalizer(object *unstructured.Unstructured) {
	switch {
	case len(object.GetFinalizers()) > 0:
		object.SetFinalizers(nil)
	case object.GetDeletionTimestamp() == nil:
		object.SetFinalizers([]string{[]string{cascade, cascadeFinalizer + "/foreground"}[w.dice.IntN(2)]})
	}
}

// ask asks for a sync, or for a refresh, as argocd-server does.
func (w *worker) ask(object *unstructured.Unstructured) {
	if _, busy := object.Object["operation"]; !busy && w.dice.IntN(2) == 0 {
		set(object, map[string]any{"sync": map[string]any{"revision": fmt.Sprint("number ", w.serial)}}, "operation")
		return
	}
	annotate("argocd.argoproj.io/refresh", []string{"normal", "hard"}[w.dice.IntN(2)])(object)
}

func (w *worker) rewrite(ctx context.Context, c *lab.Cluster, s cluster.Selection, change func(*unstructured.Unstructured)) error {
	_, err := rewrite(ctx, c, s, change)
	return err
}
