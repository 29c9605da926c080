package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// policy is a ValidatingAdmissionPolicy for the Applications of one namespace that denies the path "cake".
const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules: [{apiGroups: [argoproj.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [applications]}]
  matchConditions: [{name: ours, expression: "object.metadata.name.startsWith('%[1]s')"}]
  validations: [{expression: "object.spec.source.path != 'cake'", message: no cake on Fridays, reason: %[3]s}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

// binding is what puts a policy into effect.
func binding(c *lab.Cluster, name string) side {
	return side{c, cluster.Selection{
		Resource: schema.GroupVersionResource{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings",
		},
		Name: name,
	}}
}

// inEffect waits until a cluster denies the object, which it is only asked about. Nothing tells when admission control has
// learnt what it was told to do: asking is the only way to know.
func inEffect(t *testing.T, s side, object *unstructured.Unstructured) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := s.cluster.Of(s.selection).Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "cake")
	}, timeout, 50*time.Millisecond)
}

// onSpoke is the Application as its spoke would get it.
func (a *twin) onSpoke(changes ...change) *unstructured.Unstructured {
	object := argocd.New(a.declared)
	object.SetNamespace(a.spoke.selection.Namespace)
	for _, change := range changes {
		change(object)
	}
	return object
}

func cake(object *unstructured.Unstructured) { spec("cake", "source", "path")(object) }

func bread(object *unstructured.Unstructured) { spec("bread", "source", "path")(object) }

// reports reports a health and a revision on a spoke, as its application controller does.
func reports(health, revision string) change {
	return func(object *unstructured.Unstructured) {
		set(object, health, "status", "health", "status")
		set(object, "Synced", "status", "sync", "status")
		set(object, revision, "status", "sync", "revision")
	}
}

func TestValidatingAdmissionPolicyDenialShowsOnHub(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{"invalid": "Invalid", "forbidden": "Forbidden"} { // 422 and 403
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoke := shared.Spoke("a")
			denied, other := newTwin("a", name), newTwin("a", "beside-"+name)
			require.NoError(t, spoke.ApplyYAML(t.Context(), fmt.Appendf(nil, policy, name, lab.Namespace, reason), ""))
			inEffect(t, denied.spoke, denied.onSpoke(cake))

			denied.create(t, cake)
			denied.hub.becomes(t, refused("no cake on Fridays"), degraded("no cake on Fridays"))
			other.create(t, cake)
			other.arrives(t)

			denied.hub.edit(t, bread)
			denied.arrives(t, has("bread", "spec", "source", "path"))
			denied.hub.becomes(t, accepted, has("", "status", "health", "status"))
			denied.spoke.edit(t, reports("Healthy", "one"))
			denied.hub.becomes(t, has("Healthy", "status", "health", "status"))

			// What is there already stays as it was, and is still looked after.
			denied.hub.edit(t, cake)
			denied.hub.becomes(t, refused("no cake on Fridays"), degraded("no cake on Fridays"))
			denied.spoke.edit(t, label("mine", "yes"))
			denied.spoke.edit(t, reports("Progressing", "two"))
			denied.spoke.becomes(t, has("bread", "spec", "source", "path"), labelled("mine", ""))
			denied.hub.becomes(t, has("two", "status", "sync", "revision"), degraded("no cake on Fridays"))
			denied.hub.edit(t, bread)
			denied.hub.becomes(t, accepted, has("Progressing", "status", "health", "status"))
		})
	}
}

// What was refused is tried again from time to time: nobody has to touch the hub when the spoke was mended.
func TestDeniedApplicationIsRetriedAfterPolicyChange(t *testing.T) {
	t.Parallel()
	name := unique("relenting")
	s := startSite(t, name, lab.AgentOptions{Args: []string{"--compare-interval=2s"}}).connected(t)
	app := s.newTwin(name)
	require.NoError(t, s.spoke.ApplyYAML(t.Context(), fmt.Appendf(nil, policy, name, name, "Invalid"), ""))
	inEffect(t, app.spoke, app.onSpoke(cake))
	app.create(t, cake)
	app.hub.becomes(t, refused("no cake on Fridays"))

	require.NoError(t, s.spoke.Delete(t.Context(), binding(s.spoke, name).selection))
	app.arrives(t, has("cake", "spec", "source", "path"))
	app.hub.becomes(t, accepted)
}

func TestForbiddenDeletionShowsOnHub(t *testing.T) {
	t.Parallel()
	s := newRestrictedSite(t, "undeletable", "get", "list", "watch", "create", "patch")
	app := s.newTwin("undeletable").create(t, finalize(cascadeFinalizer))
	app.arrives(t)
	app.hub.delete(t)
	app.hub.becomes(t, beingDeleted, refused("undeletable", "forbidden", "delete"), degraded("undeletable", "forbidden"))

	s.grant(t, "get", "list", "watch", "create", "patch", "delete")
	app.spoke.becomes(t, beingDeleted)
	app.spoke.edit(t, finalize())
	app.hub.vanishes(t)
}

func TestRBACDenialShowsOnHub(t *testing.T) {
	t.Parallel()
	s := newRestrictedSite(t, "restricted", "get", "list", "watch", "create")
	app := s.newTwin("restricted").create(t)
	app.arrives(t)
	app.hub.edit(t, label("team", "blue"))
	app.hub.becomes(t, refused("forbidden", "patch", "restricted"))
	other := s.newTwin("beside").create(t)
	other.arrives(t)

	s.grant(t, "get", "list", "watch", "create", "patch")
	app.spoke.becomes(t, labelled("team", "blue"))
	app.hub.becomes(t, accepted)
}

// newRestrictedSite returns a site whose agent is a user of its name, with these rights to Applications and no others.
func newRestrictedSite(t *testing.T, name string, verbs ...string) *site {
	t.Helper()
	name = unique(name)
	s := prepareSite(t, name, lab.AgentOptions{Args: []string{
		"--kubeconfig=" + impersonating(t, shared.Spoke("b"), name), "--compare-interval=2s",
	}})
	s.grant(t, verbs...)
	start(t, s.agent.Start)
	return s.connected(t)
}

// grant makes these the rights to applications that the agent of a restricted site has, besides those that it needs to all
// else.
func (s *site) grant(t *testing.T, verbs ...string) {
	t.Helper()
	role := `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: some}, rules: [
  {apiGroups: [argoproj.io], resources: [applications], verbs: [%[2]s]},
  {apiGroups: ["", argoproj.io], resources: [appprojects, secrets, configmaps], verbs: [get, list, watch, create, patch, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: some},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: some},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]}
`
	require.NoError(t, s.spoke.ApplyYAML(t.Context(), fmt.Appendf(nil, role, s.name, strings.Join(verbs, ", ")), s.name))
	t.Cleanup(func() {
		side{s.spoke, cluster.Selection{Resource: rbac("roles"), Namespace: s.name, Name: "some"}}.delete(t)
	})
}

func rbac(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
}

// impersonating returns the path of a kubeconfig by which one is another user than the lab gives out.
func impersonating(t *testing.T, c *lab.Cluster, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	require.NoError(t, err)
	for _, who := range config.AuthInfos {
		who.Impersonate = user
	}
	data, err := clientcmd.Write(*config)
	require.NoError(t, err)
	path, err := shared.Host.Write("kubeconfigs/"+c.Name+"-as-"+user, data)
	require.NoError(t, err)
	return path
}

func TestWebhookDenialShowsOnHub(t *testing.T) {
	t.Parallel()
	app, other := newTwin("a", "hooked"), newTwin("a", "not-hooked")
	hook := newWebhook(t, app.spoke, "no cake, says the webhook")
	inEffect(t, app.spoke, app.onSpoke(hooked))

	app.create(t, hooked)
	app.hub.becomes(t, refused("admission webhook", "no cake, says the webhook"))
	other.create(t)
	other.arrives(t)

	hook.answer("")
	app.hub.edit(t, label("again", "please"))
	app.arrives(t)
	app.hub.becomes(t, accepted)

	// The code is the webhook's choice, and may be one that stands for a conflict, or for nothing being there.
	for _, code := range []int32{http.StatusConflict, http.StatusNotFound} {
		reason := fmt.Sprint("no cake either, by ", code)
		hook.answerBy(code, reason)
		app.hub.edit(t, label("again", fmt.Sprint(code)))
		app.hub.becomes(t, refused("admission webhook", reason))
	}
	hook.answer("")
	app.hub.edit(t, label("again", "please"))
	app.hub.becomes(t, accepted)
}

// What was refused is not tried again, so it is told until something that is asked for later is taken. Nobody takes it for
// the other thing that may be refused, the Application itself.
func TestRefusedSyncShowsOnHub(t *testing.T) {
	t.Parallel()
	app := newTwin("b", "no-sync")
	hook := newWebhook(t, app.spoke, "no cake")
	inEffect(t, app.spoke, app.onSpoke(hooked))
	hook.answer("")
	app.create(t, hooked)
	app.arrives(t)

	hook.answerBy(http.StatusConflict, "no syncing today")
	clickSync(t, app)
	app.hub.becomes(t, refused("what was asked for", "no syncing today"), idle)
	hook.answer("")
	app.hub.edit(t, label("team", "blue"))
	app.spoke.becomes(t, labelled("team", "blue"))
	app.hub.becomes(t, refused("no syncing today"))

	clickSync(t, app)
	app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(1), accepted)
}

// A webhook that does not answer says nothing of the Application: that is tried again, without anybody's doing.
func TestHangingWebhookDoesNotBlockOtherApplications(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hanging", lab.AgentOptions{}).connected(t)
	app, other := s.newTwin("hooked"), s.newTwin("not-hooked")
	hook := newWebhook(t, app.spoke, "no cake")
	inEffect(t, app.spoke, app.onSpoke(hooked))
	hook.hang()
	app.create(t, hooked)
	<-hook.hanging
	other.create(t)
	other.arrives(t)

	hook.answer("")
	app.arrives(t)
	require.True(t, accepted(app.hub.get(t)))
}

// hooked makes an Application one that a webhook is asked about.
func hooked(object *unstructured.Unstructured) { label("hooked", "yes")(object) }

// Two write at the same time, and the agent's view of it is always late: nothing that either wrote is lost.
func TestUpdateConflictsAreRetried(t *testing.T) {
	t.Parallel()
	s := newSite(t, "contended", lab.AgentOptions{}).connected(t)
	app := s.newTwin("contended").create(t)
	app.arrives(t)
	s.agent.APIServer.Delay(30 * time.Millisecond)
	written := make(chan string)
	go func() {
		last := ""
		defer func() { written <- last }()
		for n := range 60 {
			value := fmt.Sprint("note ", n)
			if app.spoke.cluster.Update(t.Context(), app.spoke.selection, annotate(notifiedAnnotation, value)) == nil {
				last = value
			}
		}
	}()
	for n := range 20 {
		app.hub.edit(t, label("n", fmt.Sprint(n)))
	}
	app.spoke.becomes(t, labelled("n", "19"), annotated(notifiedAnnotation, <-written))
	app.hub.becomes(t, accepted)
}

func TestLargeApplication(t *testing.T) {
	t.Parallel()
	s := newSite(t, "large", lab.AgentOptions{}).connected(t)
	app, other := s.newTwin("large"), s.newTwin("beside")
	values := strings.Repeat("x", 14<<20/10)
	app.create(t, spec(values, "source", "helm", "values"))
	app.arrives(t, has(values, "spec", "source", "helm", "values"))
	values = strings.Repeat("y", 14<<20/10)
	app.hub.edit(t, spec(values, "source", "helm", "values"))
	app.spoke.becomes(t, has(values, "spec", "source", "helm", "values"))
	other.create(t).arrives(t)
}

// What the spoke adds may be too much for it, though not for the hub.
func TestTooLargeApplicationShowsOnHub(t *testing.T) {
	t.Parallel()
	s := newSite(t, "too-large", lab.AgentOptions{}).connected(t)
	app := s.newTwin("too-large").create(t)
	app.arrives(t)
	app.spoke.edit(t, annotate(notifiedAnnotation, strings.Repeat("n", 200<<10)))
	app.hub.edit(t, spec(strings.Repeat("x", 14<<20/10), "source", "helm", "values"))
	app.hub.becomes(t, refused("too large"))
	s.newTwin("beside").create(t).arrives(t)

	app.hub.edit(t, spec("small: again", "source", "helm", "values"))
	app.spoke.becomes(t, has("small: again", "spec", "source", "helm", "values"))
	app.hub.becomes(t, accepted)
}

// The status is only on the spoke then. Whoever looks at either side finds out why.
func TestRefusedStatusIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, "status-refused", lab.AgentOptions{}).connected(t)
	app := s.newTwin("hooked")
	hook := newWebhook(t, app.hub, "no cake")
	object := argocd.New(app.declared)
	hooked(object)
	inEffect(t, app.hub, object)
	hook.answer("")
	app.create(t, hooked)
	app.arrives(t)
	hook.answer("no green cake")
	mark := shared.Principal.Mark()
	app.spoke.edit(t, func(object *unstructured.Unstructured) { set(object, "Degraded", "status", "health", "status") })
	saysNow(t, shared.Principal, mark, "Failed to write application status", "application=status-refused/hooked")
	says(t, s.agent, "Hub refused application status", "no green cake")
	requireEvent(t, shared.Hub, app.hub.selection.Namespace, "StatusRefused", "no green cake")
	requireEvent(t, app.spoke.cluster, app.spoke.selection.Namespace, "StatusRefusedByHub", "no green cake")
	refusals, err := metric(t.Context(), shared.Principal.MetricsURL, `argocd_principal_sync_failed_writes_total{facet="application-status",reason="AdmissionWebhook"}`)
	require.NoError(t, err)
	require.Positive(t, refusals)

	hook.answer("")
	app.spoke.edit(t, func(object *unstructured.Unstructured) { set(object, "Healthy", "status", "health", "status") })
	app.hub.becomes(t, has("Healthy", "status", "health", "status"))
}
