package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
)

// timeout is how long anything may take on a machine that is busy with other tests, and builds the programs for the first time.
const timeout = 15 * time.Minute

const (
	local     = "local" // an Application that somebody defined on the spoke
	more      = "more"  // a ConfigMap that an Application deploys that looks into folders of its folder
	finalizer = "resources-finalizer.argocd.argoproj.io"
)

// reader reads the page.
type reader struct {
	*installation.Guide

	lab        *installation.Lab
	hub, spoke *installation.Site
	uid        string // of the Application local
}

// within is a context with a deadline, for what somebody waits for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// begin makes what people have before they begin: Argo CD on the hub, which pushes two Applications to a spoke.
func begin(t *testing.T) *reader {
	t.Helper()
	l, err := installation.Start(within(t), "hub", "spoke")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	someone, err := l.Reader(within(t))
	require.NoError(t, err)
	r := &reader{lab: l, hub: l.Sites[0], spoke: l.Sites[1]}
	before, err := someone.Guide("getting-started.md")
	require.NoError(t, err)
	_, err = before.Run(within(t), "create namespace argocd", "kubectl --context spoke", ":")
	require.NoError(t, err)
	r.Guide, err = someone.Guide("hybrid.md")
	require.NoError(t, err)

	require.NoError(t, r.ConfigureArgoCD(within(t)))
	require.NoError(t, r.LogIn(within(t), r.hub))
	r.types(t, "argocd cluster add spoke --name "+direct+" --yes")
	_, err = r.Git.Commit(within(t), "A folder in the folder", map[string]string{
		"guestbook/more/more.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + more + "}\n",
	})
	require.NoError(t, err)
	require.NoError(t, r.hub.ApplyYAML(within(t), []byte(existing), installation.Namespace))
	byName, byServer := r.application(stays, direct), r.application(moves, "")
	set(t, byServer, map[string]any{"server": "https://" + r.spoke.Address, "namespace": moves}, "spec", "destination")
	byServer.SetFinalizers([]string{finalizer})
	require.NoError(t, r.hub.Apply(within(t), byName, byServer))
	for _, app := range []string{stays, moves} {
		r.becomes(t, r.hub, argocd.Named(installation.Namespace, app), argocd.SyncedAndHealthy)
	}
	return r
}

// existing is a project for the cluster that the hub pushes to, and a private repository.
const existing = `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: ` + project + `}
spec:
  sourceRepos: ["*"]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
  destinations: [{namespace: "*", name: ` + direct + `}]
---
apiVersion: v1
kind: Secret
metadata: {name: ` + repository + `, labels: {argocd.argoproj.io/secret-type: repository}}
stringData: {type: git, url: "https://git.example.com/my-org/backend.git", password: confidential}
`

// application is one of the project, which deploys into a namespace of its own name.
func (r *reader) application(name, destination string) *unstructured.Unstructured {
	app := argocd.New(argocd.Application{
		Namespace: installation.Namespace, Name: name, RepoURL: r.Git.URL, Path: "guestbook", Destination: destination, Into: name,
	})
	_ = unstructured.SetNestedField(app.Object, project, "spec", "project") // the field is there
	return app
}

// defineLocal makes an Application on the spoke that is none of the hub's, though it has the label, by chance.
func (r *reader) defineLocal(t *testing.T) {
	t.Helper()
	require.NoError(t, r.spoke.Settled(within(t), installation.Namespace))
	app := r.application(local, "")
	app.SetLabels(map[string]string{label: "true"})
	set(t, app, local, "spec", "project")
	require.NoError(t, r.spoke.ApplyYAML(within(t), []byte(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: `+local+`}
spec: {sourceRepos: ["*"], destinations: [{namespace: "*", name: in-cluster}], clusterResourceWhitelist: [{group: "*", kind: "*"}]}
`), installation.Namespace))
	require.NoError(t, r.spoke.Apply(within(t), app))
	r.uid = string(r.becomes(t, r.spoke, argocd.Named(installation.Namespace, local), argocd.SyncedAndHealthy).GetUID())
}

// localIsLeftAlone fails unless the spoke's own Application is as it was.
func (r *reader) localIsLeftAlone(t *testing.T) {
	t.Helper()
	is := r.becomes(t, r.spoke, argocd.Named(installation.Namespace, local), argocd.SyncedAndHealthy)
	require.Equal(t, r.uid, string(is.GetUID()))
	require.False(t, isReplica(is))
	there, err := r.hub.Get(t.Context(), argocd.Named(installation.Namespace, local))
	require.NoError(t, err)
	require.Nil(t, there)
}

// run runs the page's block of commands that has a text.
func (r *reader) run(t *testing.T, with string) string {
	t.Helper()
	out, err := r.Run(within(t), with)
	require.NoError(t, err, r.explain(t))
	t.Log(out)
	return out
}

// types runs commands that are none of the page's.
func (r *reader) types(t *testing.T, commands string) string {
	t.Helper()
	out, err := r.Shell.Run(within(t), commands)
	require.NoError(t, err, r.explain(t))
	return out
}

func (r *reader) explain(t *testing.T) fmt.Stringer {
	t.Helper()
	return installation.Explain(t.Context(), r.hub, r.spoke)
}

// becomes waits for a condition of an object, and returns it as it was then.
func (r *reader) becomes(t *testing.T, s *installation.Site, of cluster.Selection, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	object, err := s.Wait(within(t), of, is)
	require.NoError(t, err, r.explain(t))
	return object
}

// deployed are the UIDs of what an Application has on the spoke, when its Deployment has the one Pod that it is to have.
func (r *reader) deployed(t *testing.T, app string) map[string]string {
	t.Helper()
	require.NoError(t, r.spoke.Settled(within(t), app))
	uids := make(map[string]string)
	for _, kind := range []string{"deployments", "services", "configmaps", "pods"} {
		objects, err := r.spoke.List(t.Context(), cluster.Selection{Resource: resource(kind), Namespace: app})
		require.NoError(t, err)
		for _, object := range objects {
			uids[kind+" "+object.GetName()] = string(object.GetUID())
		}
	}
	return uids
}

// heals fails unless what an Application has deployed comes back when it is deleted.
func (r *reader) heals(t *testing.T, app string) {
	t.Helper()
	service := cluster.Selection{Resource: resource("services"), Namespace: app, Name: "guestbook-ui"}
	old, before := r.becomes(t, r.spoke, service, exists).GetUID(), r.operation(t, app)
	require.NoError(t, r.spoke.Delete(within(t), service))
	r.becomes(t, r.spoke, service, func(object *unstructured.Unstructured) bool { return object != nil && object.GetUID() != old })
	r.operates(t, app, before)
}

// operation is when an Application's last one began and ended, as the hub has it. An agent's Application that was not synced since it came has none.
func (r *reader) operation(t *testing.T, app string) string {
	t.Helper()
	return operation(r.becomes(t, r.hub, argocd.Named(installation.Namespace, app), func(object *unstructured.Unstructured) bool {
		return argocd.SyncedAndHealthy(object) && text(object, "status", "operationState", "phase") != "Running"
	}))
}

// operates waits until an Application's last operation is another one than before, and has succeeded.
func (r *reader) operates(t *testing.T, app, before string) {
	t.Helper()
	r.becomes(t, r.hub, argocd.Named(installation.Namespace, app), func(object *unstructured.Unstructured) bool {
		return argocd.SyncedAndHealthy(object) && operation(object) != before && text(object, "status", "operationState", "phase") == "Succeeded"
	})
}

func operation(app *unstructured.Unstructured) string {
	return text(app, "status", "operationState", "startedAt") + " " + text(app, "status", "operationState", "finishedAt")
}

// shows fails unless argocd-server has the tree and the logs of an Application.
func (r *reader) shows(t *testing.T, app string) {
	t.Helper()
	r.showsTree(t, app, r.types(t, "argocd app get "+app+" --output tree"))
	require.Contains(t, r.types(t, "argocd app logs "+app), "serving")
}

// showsTree fails unless an Application's Pod is in what argocd has shown.
func (r *reader) showsTree(t *testing.T, app, shown string) {
	t.Helper()
	pods, err := r.spoke.Kubernetes.CoreV1().Pods(app).List(within(t), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	require.Contains(t, shown, "Pod/"+pods.Items[0].Name)
}

// named is an object of Argo CD's namespace.
func named(kind, name string) cluster.Selection {
	return cluster.Selection{Resource: resource(kind), Namespace: installation.Namespace, Name: name}
}

func resource(kind string) schema.GroupVersionResource {
	switch kind {
	case "appprojects":
		return schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: kind}
	case "deployments":
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: kind}
	default:
		return corev1.SchemeGroupVersion.WithResource(kind)
	}
}

func exists(object *unstructured.Unstructured) bool { return object != nil }

// isReplica holds for an object that one of our programs has written.
func isReplica(object *unstructured.Unstructured) bool {
	return object != nil && object.GetAnnotations()["argocd.argoproj.io/source-uid"] != ""
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}

func set(t *testing.T, object *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	require.NoError(t, unstructured.SetNestedField(object.Object, value, path...))
}
