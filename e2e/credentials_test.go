package e2e_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// project selects an AppProject.
func project(c *lab.Cluster, namespace, name string) side {
	return side{c, cluster.Selection{
		Resource:  schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
		Namespace: namespace, Name: name,
	}}
}

// declare creates an object, and deletes it when the test is over.
func (s side) declare(t *testing.T, kind string, content map[string]any, changes ...change) side {
	t.Helper()
	version := "v1"
	if s.selection.Resource.Group != "" {
		version = s.selection.Resource.GroupVersion().String()
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind,
		"metadata": map[string]any{"name": s.selection.Name, "namespace": s.selection.Namespace},
	}}
	maps.Copy(object.Object, content)
	for _, change := range changes {
		change(object)
	}
	create(t, s.cluster, s.selection, object)
	return s
}

// projectFor is the spec of a project that is for agents of that pattern.
func projectFor(agents string) map[string]any {
	return map[string]any{"spec": map[string]any{
		"sourceNamespaces": []any{agents}, "sourceRepos": []any{"*"},
		"destinations": []any{
			map[string]any{"name": agents, "server": "", "namespace": "prod-*"},
			map[string]any{"name": "nobody", "server": "", "namespace": "*"},
		},
		"roles": []any{map[string]any{"name": "admin", "policies": []any{}}},
	}}
}

// repository is the content of a Secret of a repository.
func repository(project string) map[string]any {
	data := map[string]any{"url": inBase64("https://git.example.com/x"), "password": inBase64("secret"), "type": inBase64("git")}
	if project != "" {
		data["project"] = inBase64(project)
	}
	return map[string]any{"data": data}
}

const secretType = "argocd.argoproj.io/secret-type"

func TestProjectsReachAgentsThatTheirDestinationsPermit(t *testing.T) {
	t.Parallel()
	s := newSite(t, "projects", lab.AgentOptions{}).connected(t)
	name := unique("team")
	there := project(s.spoke, s.name, name)
	hub := project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor(s.name), label("team", "blue"))
	uid := string(hub.get(t).GetUID())
	arrived := there.becomes(t, annotated(sourceUID, uid), labelled("team", "blue"), absent("spec", "roles"), absent("spec", "sourceNamespaces"))
	require.Equal(t, []any{
		map[string]any{"name": "in-cluster", "server": "https://kubernetes.default.svc", "namespace": "prod-*"},
		map[string]any{"server": "!**", "namespace": s.name}, // the agent's own
	},
		arrived.Object["spec"].(map[string]any)["destinations"])

	there.edit(t, func(object *unstructured.Unstructured) {
		set(object, []any{"https://evil.example.com"}, "spec", "sourceRepos")
	})
	original := func(object *unstructured.Unstructured) bool {
		repos, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "sourceRepos")
		return len(repos) == 1 && repos[0] == "*"
	}
	there.becomes(t, original)
	there.delete(t)
	there.becomes(t, original, func(object *unstructured.Unstructured) bool { return object.GetUID() != arrived.GetUID() })

	hub.edit(t, func(object *unstructured.Unstructured) {
		set(object, []any{"somebody-else"}, "spec", "sourceNamespaces")
	})
	there.vanishes(t)
	hub.edit(t, func(object *unstructured.Unstructured) {
		set(object, []any{s.name[:3] + "*"}, "spec", "sourceNamespaces")
	})
	there.becomes(t, annotated(sourceUID, uid))
	hub.edit(t, func(object *unstructured.Unstructured) {
		set(object, []any{map[string]any{"name": "!" + s.name, "namespace": "*"}, map[string]any{"server": "*", "namespace": "*"}}, "spec", "destinations")
	})
	there.vanishes(t)
}

func TestCredentialsFollowTheirProject(t *testing.T) {
	t.Parallel()
	s := newSite(t, "credentials", lab.AgentOptions{}).connected(t)
	name := unique("secret-team")
	hub := core(shared.Hub, "secrets", lab.Namespace, name).declare(t, "Secret", repository(name), label(secretType, "repository"))
	creds := core(shared.Hub, "secrets", lab.Namespace, name+"-creds").declare(t, "Secret", repository(name), label(secretType, "repo-creds"))
	nobodys := core(shared.Hub, "secrets", lab.Namespace, name+"-nobodys").declare(t, "Secret", repository(""), label(secretType, "repository"))
	there, alsoThere := core(s.spoke, "secrets", s.name, name), core(s.spoke, "secrets", s.name, name+"-creds")
	of := project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor(s.name)) // late

	arrived := there.becomes(t, annotated(sourceUID, string(hub.get(t).GetUID())), labelled(secretType, "repository"))
	require.Equal(t, hub.get(t).Object["data"], arrived.Object["data"])
	alsoThere.becomes(t, annotated(sourceUID, string(creds.get(t).GetUID())), labelled(secretType, "repo-creds"))

	there.edit(t, func(object *unstructured.Unstructured) { set(object, "eA==", "data", "password") })
	there.becomes(t, has(inBase64("secret"), "data", "password"))

	// A password that was changed arrives also where somebody has made the copy immutable.
	there.edit(t, func(object *unstructured.Unstructured) { set(object, true, "immutable") })
	hub.edit(t, func(object *unstructured.Unstructured) { set(object, "eA==", "data", "password") })
	there.becomes(t, has("eA==", "data", "password"), absent("immutable"))

	// What no longer belongs on the spoke is removed, also if that changed while the agent was away.
	stopped(t, s.agent.Stop)
	of.edit(t, func(object *unstructured.Unstructured) {
		set(object, []any{"somebody-else"}, "spec", "sourceNamespaces")
	})
	start(t, s.agent.Start)
	there.vanishes(t)
	alsoThere.vanishes(t)
	require.False(t, core(s.spoke, "secrets", s.name, nobodys.selection.Name).exists(t))
}

// Nothing that was missed is missed for good, and nobody finds in a log what a Secret says, however much is logged.
func TestCredentialChangesWhilePrincipalIsDown(t *testing.T) {
	t.Parallel()
	const everything = "--log-level=trace"
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{everything}})
	s := newSite(t, "vaulted", lab.AgentOptions{Principal: principal, Args: []string{everything}}).connected(t)
	name := unique("vault")
	content := repository(name)
	put := func(key, value string) change {
		return func(object *unstructured.Unstructured) { set(object, inBase64(value), "data", key) }
	}
	project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor(s.name))
	hub := core(shared.Hub, "secrets", lab.Namespace, name).declare(t, "Secret", content, label(secretType, "repository"), put("password", "swordfish"))
	there := core(s.spoke, "secrets", s.name, name)
	there.becomes(t, has(inBase64("swordfish"), "data", "password"))
	core(shared.Hub, "secrets", lab.Namespace, name+"-besides").declare(t, "Secret", content, label(secretType, "repository"))
	core(s.spoke, "secrets", s.name, name+"-besides").becomes(t) // the deletion guard would hold the only one

	stopped(t, principal.Stop)
	hub.edit(t, put("password", "tunafish"))
	start(t, principal.Start)
	there.becomes(t, has(inBase64("tunafish"), "data", "password"))
	stopped(t, principal.Stop)
	hub.edit(t, put("project", "of-nobody"))
	start(t, principal.Start)
	there.vanishes(t)
	hub.edit(t, put("project", name))
	there.becomes(t)
	hub.edit(t, put("project", "of-nobody"))
	there.vanishes(t)
	for _, password := range []string{"swordfish", "tunafish"} {
		requireSilence(t, password, principal.LogPath(), s.agent.LogPath())
	}
	require.Contains(t, logSince(t, s.agent.LogPath(), 0), name, "that there is such a Secret is no secret")
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// requireSilence fails if a password is in a log, in any of the ways in which it gets around.
func requireSilence(t *testing.T, password string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		log := logSince(t, path, 0)
		require.NotEmpty(t, log)
		for _, form := range []string{password, inBase64(password)} {
			require.NotContains(t, log, form, path)
		}
	}
}

// They go to nobody, which is not for the principal to put right but to say.
func TestPrincipalLogsSecretsThatReachNoAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t, "unclaimed", lab.AgentOptions{}).connected(t)
	name := unique("nobodys")
	project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor(s.name))
	mark := shared.Principal.Mark()
	core(shared.Hub, "secrets", lab.Namespace, name).declare(t, "Secret", repository(""), label(secretType, "repository"))
	core(shared.Hub, "secrets", lab.Namespace, name+"-typo").declare(t, "Secret", repository(name), label(secretType, "repositroy"))
	core(shared.Hub, "secrets", lab.Namespace, name+"-right").declare(t, "Secret", repository(name), label(secretType, "repository"))
	saysNow(t, shared.Principal, mark, "Repository Secret matches no agent", name+"-typo", "no type that Argo CD knows", "belongs to no project")
	core(s.spoke, "secrets", s.name, name+"-right").becomes(t)
	require.False(t, core(s.spoke, "secrets", s.name, name).exists(t))
	require.False(t, core(s.spoke, "secrets", s.name, name+"-typo").exists(t))
}

// However many credentials are withdrawn while the agent is away: they are on the hub still, so that is no accident.
func TestRevokedCredentialsAreDeletedDespiteDeletionGuard(t *testing.T) {
	t.Parallel()
	s := newSite(t, "withdrawn", lab.AgentOptions{}).connected(t)
	team, other := unique("left-team"), unique("stays-team")
	of := project(shared.Hub, lab.Namespace, team).declare(t, "AppProject", projectFor(s.name))
	project(shared.Hub, lab.Namespace, other).declare(t, "AppProject", projectFor(s.name))
	var copies []side
	secret := func(project, name, use string) {
		core(shared.Hub, "secrets", lab.Namespace, name).declare(t, "Secret", repository(project), label(secretType, use))
		copies = append(copies, core(s.spoke, "secrets", s.name, name))
	}
	for _, use := range []string{"repository", "repo-creds"} {
		for n := range 12 {
			secret(team, fmt.Sprintf("%s-%s-%02d", team, use, n), use)
		}
	}
	secret(other, other, "repository")
	for _, replica := range copies {
		replica.becomes(t)
	}
	stopped(t, s.agent.Stop)
	of.edit(t, func(object *unstructured.Unstructured) {
		set(object, []any{"somebody-else"}, "spec", "sourceNamespaces")
	})
	start(t, s.agent.Start)
	stays := copies[len(copies)-1]
	for _, replica := range copies[:len(copies)-1] {
		replica.vanishes(t)
	}
	stays.becomes(t)
}

func TestUnmanagedSpokeSecretIsNotTouched(t *testing.T) {
	t.Parallel()
	s := newSite(t, "own-secret", lab.AgentOptions{}).connected(t)
	name := unique("taken")
	there := core(s.spoke, "secrets", s.name, name).declare(t, "Secret", repository("theirs"), label(secretType, "repository"))
	before := there.get(t)
	mark := shared.Principal.Mark()
	project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor(s.name))
	core(shared.Hub, "secrets", lab.Namespace, name).declare(t, "Secret", repository(name), label(secretType, "repository"))
	saysNow(t, shared.Principal, mark, "Agent refused object", "name="+name, "which is no replica object: rename or delete one of the two")
	requireEvent(t, shared.Hub, lab.Namespace, "RefusedByAgent", "Agent "+s.name+" refused it: ")
	require.Equal(t, before.GetResourceVersion(), there.get(t).GetResourceVersion())
}

func TestGPGKeysReachManagedAgents(t *testing.T) {
	t.Parallel()
	s := newSite(t, "keys", lab.AgentOptions{}).connected(t)
	hub := core(shared.Hub, "configmaps", lab.Namespace, "argocd-gpg-keys-cm")
	there := core(s.spoke, "configmaps", s.name, "argocd-gpg-keys-cm")
	if _, err := shared.Hub.Get(t.Context(), hub.selection); err == nil && hub.exists(t) {
		hub.edit(t, func(object *unstructured.Unstructured) {
			set(object, map[string]any{"4AEE18F83AFDEB23": "a key"}, "data")
		})
	} else {
		hub.declare(t, "ConfigMap", map[string]any{"data": map[string]any{"4AEE18F83AFDEB23": "a key"}})
	}
	there.becomes(t, has("a key", "data", "4AEE18F83AFDEB23"))
	hub.edit(t, func(object *unstructured.Unstructured) { set(object, map[string]any{}, "data") })
	there.becomes(t, absent("data", "4AEE18F83AFDEB23"))
}

// exists reports whether the object is there.
func (s side) exists(t *testing.T) bool {
	t.Helper()
	object, err := s.cluster.Get(t.Context(), s.selection)
	require.NoError(t, err)
	return object != nil
}

// withRole returns a project with a role.
func withRole(content map[string]any) map[string]any {
	content["spec"].(map[string]any)["roles"] = []any{map[string]any{
		"name": "admin", "groups": []any{"people"},
		"policies": []any{
			"p, proj:own:admin, applications, sync, own/*, allow", "p, proj:own:gone, applications, sync, own/*, allow",
			"p, proj:own:admin, clusters, create, own/*, allow",
		},
	}}
	return content
}

// Roles hand out rights on the hub. Whether agents may do that is for the hub to say.
func TestRolesOfAutonomousProjectsAreNotMirroredByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		roles func(agent string) any
	}{
		{nil, func(string) any { return nil }},
		{[]string{"--mirror-project-roles"}, func(agent string) any {
			return []any{map[string]any{
				"name": "admin", "groups": []any{"people"},
				"policies": []any{"p, proj:" + agent + "-own:admin, applications, sync, " + agent + "-own/" + agent + "/*, allow"},
			}}
		}},
	} {
		s, app := newAutonomous(t, "roles", lab.AgentOptions{Principal: newPrincipal(t, lab.PrincipalOptions{Args: c.args})})
		app.shown(t)
		there := project(s.spoke, s.name, "own").declare(t, "AppProject", withRole(projectFor("*")))
		shown := project(shared.Hub, lab.Namespace, s.name+"-own").becomes(t, annotated(sourceUID, string(there.get(t).GetUID())))
		require.Equal(t, c.roles(s.name), shown.Object["spec"].(map[string]any)["roles"])
	}
}

func TestAutonomousProjectsAreMirroredToHub(t *testing.T) {
	t.Parallel()
	s, app := newAutonomous(t, "projecting", lab.AgentOptions{})
	app.shown(t)
	content := withRole(projectFor("*"))
	there := project(s.spoke, s.name, "own").declare(t, "AppProject", content)
	shown := project(shared.Hub, lab.Namespace, s.name+"-own")
	is := shown.becomes(t, annotated(sourceUID, string(there.get(t).GetUID())))
	require.Equal(t, map[string]any{
		"sourceNamespaces": []any{s.name}, "sourceRepos": []any{"*"},
		"destinations": []any{
			map[string]any{"name": s.name, "namespace": "prod-*"},
		},
	}, is.Object["spec"])
	shown.delete(t)
	shown.becomes(t, func(object *unstructured.Unstructured) bool { return object.GetUID() != is.GetUID() })
	there.delete(t)
	shown.vanishes(t)
}
