package policy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

const (
	jobs      = "/apis/batch/v1/namespaces/a/jobs"
	workflows = "/apis/argoproj.io/v1alpha1/namespaces/a/workflows"

	cronJob = `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"nightly","namespace":"a","uid":"nightly-uid"},"spec":{"schedule":"0 0 * * *",
		"jobTemplate":{"metadata":{"creationTimestamp":null,"labels":{"my":"label"}},"spec":{"backoffLimit":2,"template":{"metadata":{},"spec":{
		"serviceAccountName":"mine","containers":[{"name":"c","image":"i","args":["x"],"resources":{},"securityContext":{"capabilities":{"add":[]}}}],
		"volumes":[{"name":"v","emptyDir":{}}]}}}}}}`
	job = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"nightly-2611230159","namespace":"a","labels":{"my":"label"},
		"annotations":{"cronjob.kubernetes.io/instantiate":"manual"},"ownerReferences":[{"apiVersion":"batch/v1","kind":"CronJob","name":"nightly",
		"uid":"nightly-uid","blockOwnerDeletion":true,"controller":true}]},"spec":{"backoffLimit":2,"template":{"spec":{"serviceAccountName":"mine",
		"containers":[{"name":"c","image":"i","args":["x"],"securityContext":[]}],"volumes":[{"name":"v"}]}}}}`

	cronWorkflow = `{"apiVersion":"argoproj.io/v1alpha1","kind":"CronWorkflow","metadata":{"name":"weekly","namespace":"a","uid":"weekly-uid",
		"labels":{"workflows.argoproj.io/controller-instanceid":"one"}},"spec":{"schedule":"0 0 * * *","workflowSpec":{"entrypoint":"e"},
		"workflowMetadata":{"annotations":{"my":"annotation"},"finalizers":["f"]}}}`
	workflow = `{"apiVersion":"argoproj.io/v1alpha1","kind":"Workflow","finalizers":["f"],"metadata":{"name":"weekly-202611230159","namespace":"a",
		"labels":{"workflows.argoproj.io/cron-workflow":"weekly","workflows.argoproj.io/controller-instanceid":"one"},
		"annotations":{"my":"annotation","workflows.argoproj.io/scheduled-time":"2026-11-23T01:59:00Z"},
		"ownerReferences":[{"apiVersion":"argoproj.io/v1alpha1","kind":"CronWorkflow","name":"weekly","uid":"weekly-uid"}]},"spec":{"entrypoint":"e"}}`

	template  = `{"apiVersion":"argoproj.io/v1alpha1","kind":"WorkflowTemplate","metadata":{"name":"t","namespace":"a","uid":"t-uid"},"spec":{"entrypoint":"e"}}`
	submitted = `{"apiVersion":"argoproj.io/v1alpha1","kind":"Workflow","metadata":{"name":"t-202611230159","namespace":"a",
		"labels":{"workflows.argoproj.io/workflow-template":"t"},
		"ownerReferences":[{"apiVersion":"argoproj.io/v1alpha1","kind":"WorkflowTemplate","name":"t","uid":"t-uid"}]},"spec":{"workflowTemplateRef":{"name":"t"}}}`
)

// withOwners returns a policy of a cluster with the owners, of which one belongs to no Application.
func withOwners(t *testing.T) *policy.Policy {
	t.Helper()
	server := newAPIServer(t, nil)
	server.objects = map[string]string{
		"/apis/batch/v1/namespaces/a/cronjobs/nightly":                       cronJob,
		"/apis/batch/v1/namespaces/a/cronjobs/strange":                       strings.ReplaceAll(cronJob, "nightly", "strange"),
		"/apis/argoproj.io/v1alpha1/namespaces/a/cronworkflows/weekly":       cronWorkflow,
		"/apis/argoproj.io/v1alpha1/namespaces/a/workflowtemplates/t":        template,
		"/apis/argoproj.io/v1alpha1/namespaces/argocd/workflowtemplates/own": strings.ReplaceAll(template, `"t`, `"own`),
	}
	objects := known()
	root := objects["nightly-uid"]
	for _, name := range []string{"argoproj.io/CronWorkflow/a/weekly", "weekly-uid", "argoproj.io/WorkflowTemplate/a/t", "t-uid"} {
		objects[name] = root
	}
	return follows(t, server, objects).policy
}

// What Argo CD's own scripts make is checked in e2e/contract.
func TestOnlyWhatActionsCreateCanBeCreated(t *testing.T) {
	p := withOwners(t)
	for _, c := range []struct{ target, body string }{
		{jobs, job}, {jobs + "?dryRun=All", job}, {workflows, workflow}, {workflows, submitted},
		{jobs, strings.Replace(job, `"emptyDir":{}`, ``, 1)}, {jobs, strings.Replace(job, `{"name":"v"}`, `{"name":"v","emptyDir":{}}`, 1)},
	} {
		d, err := ask(t, p, "POST", c.target, c.body)
		require.NoError(t, err)
		require.True(t, d.Allowed, "%s: %s", c.body, d.Reason)
		require.Equal(t, "guestbook", d.Application)
	}
	replaced := func(old, now string) string {
		require.Contains(t, job, old)
		return strings.Replace(job, old, now, 1)
	}
	for _, c := range []struct{ target, body, reason string }{
		// Other kinds, and other places.
		{"/api/v1/namespaces/a/pods", job, "only the Jobs and Workflows"},
		{"/api/v1/namespaces/a/configmaps", job, "only the Jobs and Workflows"},
		{"/api/v1/namespaces/a/secrets", job, "only the Jobs and Workflows"},
		{"/api/v1/namespaces/a/bindings", job, "only the Jobs and Workflows"},
		{"/api/v1/namespaces", job, "only the Jobs and Workflows"},
		{"/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings", job, "are only read"},
		{"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/a/kustomizations", job, "only the Jobs and Workflows"},
		{"/apis/batch/v1/namespaces/a/cronjobs", job, "only the Jobs and Workflows"},
		{"/apis/batch/v1/jobs", job, "only the Jobs and Workflows"},
		{"/apis/example.com/v1/namespaces/a/jobs", job, "only the Jobs and Workflows"},
		{"/apis/batch/v1/namespaces/b/jobs", job, "belongs to no"},
		{"/apis/batch/v1/namespaces/argocd/jobs", job, "nothing is changed or run"},
		// Other owners.
		{jobs, replaced(`"ownerReferences":[`, `"OwnerReferences":[`), "one ownerReference"},
		{jobs, replaced(`"controller":true}`, `"controller":true},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}`), "one ownerReference"},
		{jobs, replaced(`"uid":"nightly-uid"`, `"uid":"another-uid"`), "belongs to no"},
		{jobs, replaced(`"uid":"nightly-uid",`, ``), "no action"},
		{jobs, replaced(`"name":"nightly",`, `"name":"../nightly",`), "belongs to no"},
		{jobs, replaced(`"kind":"CronJob"`, `"kind":"ConfigMap"`), "no action"},
		{jobs, strings.ReplaceAll(job, "nightly", "strange"), "belongs to no"},
		{workflows, job, "no action"},
		{jobs, submitted, "no action"},
		{workflows, strings.Replace(workflow, `"CronWorkflow"`, `"WorkflowTemplate"`, 1), "belongs to no"},
		// Another template.
		{jobs, replaced(`"serviceAccountName":"mine"`, `"serviceAccountName":"admin"`), "spec.template.spec.serviceAccountName"},
		{jobs, replaced(`"serviceAccountName":"mine",`, ``), "spec.template.spec.serviceAccountName"},
		{jobs, replaced(`"serviceAccountName":"mine"`, `"serviceAccountName":"mine","hostPID":true`), "spec.template.spec.hostPID"},
		{jobs, replaced(`"args":["x"]`, `"args":["x","y"]`), "spec.template.spec.containers.0.args"},
		{jobs, replaced(`"args":["x"]`, `"args":["y"]`), "spec.template.spec.containers.0.args.0"},
		{jobs, replaced(`{"name":"v"}`, `{"name":"v","hostPath":{"path":"/"}}`), "spec.template.spec.volumes.0.hostPath"},
		{jobs, replaced(`{"name":"v"}`, `{"name":"v","hostPath":{}}`), "spec.template.spec.volumes.0.hostPath"},
		{jobs, replaced(`"securityContext":[]`, `"securityContext":{"privileged":true}`), "securityContext"},
		{jobs, replaced(`"securityContext":[]`, `"securityContext":{"capabilities":{"add":["SYS_ADMIN"]}}`), "securityContext"},
		{jobs, replaced(`"backoffLimit":2`, `"backoffLimit":3`), "spec.backoffLimit"},
		{jobs, replaced(`"spec":{"backoffLimit"`, `"Spec":{"backoffLimit"`), "pec: it is not"},
		{jobs, replaced(`"labels":{"my":"label"}`, `"labels":{"my":"label","another":"one"}`), "metadata.labels.another"},
		{jobs, replaced(`"labels":{"my":"label"}`, `"finalizers":["f"]`), "metadata."},
		{jobs, replaced(`"name":"nightly-2611230159"`, `"name":"another-2611230159"`), "metadata.name"},
		{jobs, replaced(`"name":"nightly-2611230159"`, `"name":"nightly-x"`), "metadata.name"},
		{jobs, replaced(`"name":"nightly-2611230159"`, `"generateName":"nightly-"`), "metadata.name"},
		{jobs, replaced(`"blockOwnerDeletion":true,`, ``), "ownerReferences.0.blockOwnerDeletion"},
		{jobs, `{"apiVersion":"batch/v1","kind":"Pod",` + job[strings.Index(job, `"metadata"`):], "no action of Argo CD creates a Pod"},
		{workflows, strings.Replace(workflow, `"entrypoint":"e"`, `"entrypoint":"other"`, 1), "spec.entrypoint"},
		{workflows, strings.Replace(workflow, `2026-11-23T01:59:00Z`, `x`, 1), "it is no time"},
		{workflows, strings.Replace(submitted, `"workflowTemplateRef":{"name":"t"}`, `"workflowTemplateRef":{"name":"other"}`, 1), "spec.workflowTemplateRef.name"},
		{workflows, strings.Replace(submitted, `"workflowTemplateRef":{"name":"t"}`, `"workflowTemplateRef":{"name":"t","clusterScope":true}`, 1), "clusterScope"},
		{workflows, strings.Replace(submitted, `{"workflowTemplateRef":{"name":"t"}}`, `{"workflowTemplateRef":{"name":"t"},"podSpecPatch":"x"}`, 1), "podSpecPatch"},
	} {
		d, err := ask(t, p, "POST", c.target, c.body)
		require.NoError(t, err)
		require.False(t, d.Allowed, "%s %s", c.target, c.body)
		require.Contains(t, d.Reason, c.reason, "%s %s", c.target, c.body)
	}
}

func TestWhatIsCreatedMustBeReadable(t *testing.T) {
	p := withOwners(t)
	for _, body := range []string{
		"", "[", `"x"`, `{"metadata":{},"metadata":{"ownerReferences":[]}}`, `{"metadata":{"ownerReferences":7}}`, job + "{}",
		strings.Replace(job, `"spec":`, `"spec":{},"spec":`, 1), strings.Replace(job, `"spec":`, `"spec":{},"\u0073pec":`, 1),
	} {
		_, err := ask(t, p, "POST", jobs, body)
		require.True(t, fails(err, http.StatusBadRequest), "%q: %v", body, err)
	}
	for _, media := range []string{"application/vnd.kubernetes.protobuf", "application/yaml", "application/cbor"} {
		r := arriving("POST", jobs)
		r.Header.Set("Content-Type", media)
		q, err := policy.Parse(r)
		require.NoError(t, err)
		d, err := p.Decide(t.Context(), q)
		require.NoError(t, err)
		require.Contains(t, d.Reason, "what is created must be JSON, so that it can be compared with its owner")
	}
}

// The caller may try again.
func TestOwnerThatCannotBeReadIsNoDenial(t *testing.T) {
	server := newAPIServer(t, nil) // which forbids to read it
	p := follows(t, server, known()).policy
	d, err := ask(t, p, "POST", jobs, job)
	require.ErrorContains(t, err, "read the owner of what is created")
	require.False(t, d.Allowed)
}
