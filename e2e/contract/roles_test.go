package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/rbac"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// aPolicy is a line of a policy of the project own.
func aPolicy() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 15).Draw(t, "other") == 0 {
			return rapid.SampledFrom([]string{
				"p, proj:own:r, applications, *, own/*, allow\np, alice, *, *, *, allow", "p, proj:own:r, *, *, */*, allow", "p, alice, projects, update, *, allow",
				"p, proj:own:gone, applications, *, own/*, allow", "", "# nothing", "g, alice, proj:own:r", "g, proj:own:r, proj:own:s", "p, proj:own:r, applications, get", "x", `p, "proj:own:r", applications, *, "own/b", deny`,
				"p, role:readonly, *, *, own/*, allow", "p, proj:own:r, *, *, *, deny", "p, proj:other:r, *, *, own/*, deny", "p, proj:own:r, *, *, own/*, allow\np, proj:own:r, *, *, own/b, deny",
			}).Draw(t, "line")
		}
		one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		between := rapid.SampledFrom([]string{", ", ",", " , "}).Draw(t, "between")
		return strings.Join([]string{
			"p", "proj:own:" + one("role", "r", "s"), one("resource", "applications", "applications", "applicationsets", "logs", "repositories", "clusters", "*", "app*"),
			one("action", "get", "*", "sync", "delete", "action/apps/Deployment/restart", "action/*"),
			one("in", "own/", "own/", "own/", "own", "") + aGlob().Filter(fitsLine).Draw(t, "object"), one("effect", "allow", "allow", "deny"),
		}, between)
	})
}

// fitsLine reports whether a text stays one field of a line.
func fitsLine(text string) bool { return !strings.Contains(text, ",") }

func aProject() *rapid.Generator[v1alpha1.AppProject] {
	role := func(name string) *rapid.Generator[v1alpha1.ProjectRole] {
		return rapid.Custom(func(t *rapid.T) v1alpha1.ProjectRole {
			return v1alpha1.ProjectRole{
				Name: name, Policies: rapid.SliceOfN(aPolicy(), 0, 3).Draw(t, "policies"),
				Groups: rapid.SliceOfN(rapid.SampledFrom([]string{
					"alice", "admins", "proj:own:s", "x\np, alice, *, *, *, allow", "x\np, bob, *, *, *, deny", "role:admin", `"alice"`, "alice, role:admin",
					"proj:payments:admin", "x\r\np, alice, *, *, *, allow", "#x",
				}), 0, 2).Draw(t, "groups"),
			}
		})
	}
	return rapid.Custom(func(t *rapid.T) v1alpha1.AppProject {
		return v1alpha1.AppProject{
			ObjectMeta: metav1.ObjectMeta{Name: "own"},
			Spec:       v1alpha1.AppProjectSpec{Roles: []v1alpha1.ProjectRole{role("r").Draw(t, "r"), role("s").Draw(t, "s")}},
		}
	})
}

// allowed asks Argo CD whether somebody may do something with an object of a project. A user is also who he is a member of.
func allowed(t *rapid.T, project v1alpha1.AppProject, subject, resource, action, object string) bool {
	defer skipPanics(t)
	enforcer := rbac.NewEnforcer(nil, argocdNamespace, "argocd-rbac-cm", nil)
	require.NoError(t, enforcer.SetBuiltinPolicy(""))
	return enforcer.EnforceRuntimePolicy(project.Name, project.ProjectPoliciesString(), subject, resource, action, object)
}

// mirroredRoles is the project that shows an autonomous agent's, with its roles.
func mirroredRoles(t *rapid.T, project v1alpha1.AppProject) v1alpha1.AppProject {
	rules, err := argocd.NewMirrorRules(nil, nil, true)
	require.NoError(t, err)
	content, err := argocd.MirrorProject("berlin", rules, "own", argocd.Content{Spec: encoded(t, project.Spec)})
	require.NoError(t, err)
	return v1alpha1.AppProject{
		ObjectMeta: metav1.ObjectMeta{Name: "berlin-own"}, Spec: decoded[v1alpha1.AppProjectSpec](t, content.Spec),
	}
}

// What the roles of an autonomous agent's project may do on the hub they may do with its objects on the spoke, if Argo CD accepts the
// project there. Of others it may read nothing at all.
func TestProjectRoleMayDoNoMoreOnTheHub(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		project := aProject().Draw(t, "project")
		if project.ValidateProject() != nil {
			return
		}
		mirrored := mirroredRoles(t, project)
		require.NoError(t, mirrored.ValidateProject())
		role := rapid.SampledFrom([]string{"r", "s"}).Draw(t, "role")
		resource := rapid.SampledFrom([]string{"applications", "applicationsets", "logs", "exec"}).Draw(t, "asked")
		action := rapid.SampledFrom([]string{"get", "sync", "delete", "action/apps/Deployment/restart"}).Draw(t, "to")
		name := aName().Draw(t, "name")
		for onSpoke, onHub := range map[string]string{"proj:own:" + role: "proj:berlin-own:" + role, "alice": "alice", "bob": "bob"} {
			if allowed(t, mirrored, onHub, resource, action, "berlin-own/berlin/"+name) {
				require.True(t, allowed(t, project, onSpoke, resource, action, "own/"+name), "%s may %s %s %s on the hub alone, by %q of %q",
					onSpoke, action, resource, name, mirrored.ProjectPoliciesString(), project.ProjectPoliciesString())
			}
		}
	})
}

// Argo CD's own enforcer is the judge: whatever roles an agent sends, what Argo CD reads of them on the hub lets nobody do anything but
// with what is in the agent's namespace, and see the project that shows the agent's.
func TestMirroredRolesAllowNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mirrored := mirroredRoles(t, aProject().Draw(t, "project"))
		one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		subject := one("subject", "alice", "bob", "admins", "mallory", "role:admin", "proj:berlin-own:r", "proj:berlin-own:s", "proj:payments:admin", "x")
		resource := one("resource", "applications", "applicationsets", "logs", "exec", "projects", "clusters", "repositories", "certificates", "accounts", "gpgkeys", "extensions")
		action := one("action", "get", "create", "update", "delete", "sync", "override", "invoke", "action/apps/Deployment/restart")
		object := one("project", "berlin-own", "berlin", "own", "payments", "berlin-ownx", "*") + one("in", "", "/", "/berlin/", "/paris/", "/argocd/", "/berlinx/") + one("name", "", "x", "*")
		if !allowed(t, mirrored, subject, resource, action, object) || resource == "projects" && action == "get" && object == "berlin-own" {
			return
		}
		require.Contains(t, []string{"applications", "applicationsets", "logs", "exec"}, resource)
		require.True(t, strings.HasPrefix(object, "berlin-own/berlin/"), "%s may %s %s %s by %q", subject, action, resource, object, mirrored.ProjectPoliciesString())
	})
}
