package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/redisprobe"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// step is a line of the script.
type step struct {
	words  []string
	typed  string
	secret bool // it prints what nobody else may see
}

// script reads the steps of testdata/argocd-agent.txt.
func script(t *testing.T, variables map[string]string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "argocd-agent.txt"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		line = os.Expand(line, func(name string) string {
			value, known := variables[name]
			require.True(t, known, "%s: $%s", line, name)
			return value
		})
		command, typed, _ := strings.Cut(line, " < ")
		command, secret := strings.CutPrefix(command, "!")
		steps = append(steps, step{strings.Fields(command), strings.ReplaceAll(typed, "|", "\n") + "\n", secret})
	}
	return steps
}

// unused returns which commands and flags of argocd-agent's documents no step uses, in the long or, if there is one, in the short form.
func unused(t *testing.T, steps []step) (missing []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "agentctl", "commands", "testdata", "argocd-agent.txt"))
	require.NoError(t, err)
	uses := func(path []string, word string) bool {
		return slices.ContainsFunc(steps, func(s step) bool {
			return len(s.words) >= len(path) && slices.Equal(s.words[:len(path)], path) && (word == "" || slices.Contains(s.words, word))
		})
	}
	for line := range strings.Lines(string(text)) {
		path, flags, ok := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasPrefix(line, "#") || !ok {
			continue
		}
		words := strings.Fields(path)
		if !uses(words, "") {
			missing = append(missing, path)
		}
		for flag := range strings.FieldsSeq(flags) {
			long, short, _ := strings.Cut(flag, ",")
			for _, form := range []string{"--" + long, "-" + short} {
				if form != "-" && !uses(words, form) {
					missing = append(missing, path+" "+form)
				}
			}
		}
	}
	return missing
}

// A set-up script that follows argocd-agent's documents runs from its beginning to its end, on an installation of Argo CD as these have it:
// every command, flag and short form of theirs.
func TestScriptOfThePublishedDocumentsRuns(t *testing.T) {
	t.Parallel()
	hub, spoke, agent, home := unique("published-hub"), unique("published-spoke"), unique("published"), t.TempDir()
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(hub), namespace(spoke), namespace(agent)))
	installed(t, hub, "application-controller", "applicationset-controller")
	installed(t, spoke, "server", "applicationset-controller", "dex-server")
	a := admin{hub: hub, environment: []string{"KUBECONFIG=" + shared.Kubeconfigs(), "HOME=" + home}}
	variables := map[string]string{
		"HUB": hub, "SPOKE": spoke, "AGENT": agent, "HOME": home, "FOLDER": t.TempDir(), "KUBECONFIG": shared.Hub.Kubeconfig, "FINGERPRINT": strings.Repeat("AB", 32),
	}
	steps := script(t, variables)
	require.ElementsMatch(t, []string{"ha demote", "ha demote --address", "ha demote --timeout"}, unused(t, steps), "which fails, see below")
	for _, s := range steps {
		cmd := exec.CommandContext(t.Context(), shared.AgentctlPath(), s.words...)
		cmd.Env, cmd.Stdin = a.environment, strings.NewReader(s.typed)
		var output, warnings bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &warnings
		require.NoError(t, cmd.Run(), "argocd-agentctl %s\n%s%s", strings.Join(s.words, " "), output.String(), warnings.String())
		require.Equal(t, s.secret, strings.Contains(output.String(), "PRIVATE KEY"), s.words)
	}
	a.fails(t, "ha demote --address x --timeout 5s", "every principal of a hub is active", "delete its Pod")

	for _, place := range []string{hub, spoke} {
		redisRuns(t, place)
		programsTake(t, place)
	}
	require.NotEqual(t, secretOf(t, shared.Hub, hub, "argocd-redis-tls").Data["ca.crt"], secretOf(t, shared.Hub, spoke, "argocd-redis-tls").Data["ca.crt"],
		"a spoke has no key of the hub's CA")
}

// mounted writes the files of a container's Secrets as a kubelet would, and returns its arguments with their paths.
func mounted(t *testing.T, namespace string, pod *corev1.PodSpec) []string {
	t.Helper()
	c := &pod.Containers[0]
	args := strings.Join(c.Args, "\x00")
	for _, volume := range pod.Volumes {
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
		if at < 0 || volume.Secret == nil || volume.Secret.SecretName != "argocd-redis-tls" {
			continue
		}
		data, folder := secretOf(t, shared.Hub, namespace, volume.Secret.SecretName).Data, t.TempDir()
		for _, item := range volume.Secret.Items {
			require.NotEmpty(t, data[item.Key], item.Key)
			require.NoError(t, os.WriteFile(filepath.Join(folder, item.Path), data[item.Key], 0o600))
		}
		args = strings.ReplaceAll(args, c.VolumeMounts[at].MountPath, folder)
	}
	return strings.Split(args, "\x00")
}

// redisRuns starts Redis as its Deployment has it now, and uses it as its clients do.
func redisRuns(t *testing.T, namespace string) {
	t.Helper()
	deployment, err := shared.Hub.Kubernetes.AppsV1().Deployments(namespace).Get(t.Context(), "argocd-redis", metav1.GetOptions{})
	require.NoError(t, err)
	args := mounted(t, namespace, &deployment.Spec.Template.Spec)
	at := slices.Index(args, "--tls-port")
	require.Positive(t, at)
	require.Equal(t, []string{"6379", "--port", "0"}, args[at+1:at+4], "its Service leads there, and nothing else listens")
	server := redistest.StartArgs(t, func(port string) []string {
		own := slices.Clone(args)
		own[at+1] = port
		for i, arg := range own {
			own[i] = strings.ReplaceAll(arg, "$(REDIS_PASSWORD)", "secret")
		}
		return own
	})
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "ca.crt"), secretOf(t, shared.Hub, namespace, "argocd-redis-tls").Data["ca.crt"], 0o600))
	for _, name := range []string{"argocd-redis", "argocd-redis." + namespace + ".svc.cluster.local", "localhost", "127.0.0.1"} {
		client, err := redisprobe.Open(t.Context(), redisprobe.Target{
			Address: server.Address, TLS: redistest.Trust(t, filepath.Join(folder, "ca.crt")), Names: []string{name}, Password: "secret", Timeout: timeout,
		})
		require.NoError(t, err, name)
		client.Close()
	}
	_, err = redisprobe.Open(t.Context(), redisprobe.Target{Address: server.Address, Password: "secret", Timeout: timeout})
	require.ErrorIs(t, err, redisprobe.ErrTLS)
}

// programsTake looks whether Argo CD's programs know the flags that they have now, and have the CA alone of the Secret.
func programsTake(t *testing.T, namespace string) {
	t.Helper()
	pods := make(map[string]*corev1.PodSpec)
	deployments, err := shared.Hub.Kubernetes.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range deployments.Items {
		pods[deployments.Items[i].Name] = &deployments.Items[i].Spec.Template.Spec
	}
	sets, err := shared.Hub.Kubernetes.AppsV1().StatefulSets(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range sets.Items {
		pods[sets.Items[i].Name] = &sets.Items[i].Spec.Template.Spec
	}
	n := 0
	for _, program := range []string{toolset.ArgoCDServer, toolset.ArgoCDRepoServer, toolset.ArgoCDController} {
		pod := pods[program]
		if pod == nil {
			continue
		}
		n++
		args := mounted(t, namespace, pod)
		require.Len(t, args, 4)
		require.Equal(t, []string{"--redis-use-tls", "--redis-ca-certificate"}, args[1:3])
		require.FileExists(t, args[3])
		files, err := os.ReadDir(filepath.Dir(args[3]))
		require.NoError(t, err)
		require.Len(t, files, 1, "the key is Redis' alone")
		help, err := exec.CommandContext(t.Context(), shared.Tools.Program(program), "--help").CombinedOutput()
		require.NoError(t, err)
		for _, flag := range args[1:3] {
			require.Contains(t, string(help), flag+" ", program)
		}
	}
	require.Equal(t, 2, n, "a hub has a server, a spoke a controller, and both a repo server")
}

// What is set up stays as it is, what cannot be is said, and nothing is half done.
func TestRedisTLSIsSetUpOnce(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.fails(t, "redis generate-certs", "Secret "+a.hub+"/argocd-agent-ca", "create it with: argocd-agentctl pki init", "argocd-agentctl pki propagate")
	a.fails(t, "redis generate-certs --cert-from-secret a", "set both or neither")
	a.fails(t, "redis configure-tls", "Secret "+a.hub+"/argocd-redis-tls on the cluster (context hub) has no tls.crt: create it with: argocd-agentctl redis generate-certs")
	a.does(t, "pki init")
	require.Contains(t, a.does(t, "redis generate-certs --dry-run").output, "created (dry run)")
	require.Contains(t, a.does(t, "redis generate-certs").output, ": created: CN=argocd-redis for argocd-redis, argocd-redis."+a.hub)
	require.Contains(t, a.does(t, "redis generate-certs").output, ": unchanged: ")
	a.fails(t, "redis generate-certs --dns redis.example.com", "it is not for redis.example.com: replace it with --upsert")
	a.fails(t, "redis configure-tls", "there is no Deployment "+a.hub+"/argocd-redis on the cluster (context hub)")

	installed(t, a.hub)
	said := a.does(t, "redis configure-tls")
	for _, where := range []string{"Deployment " + a.hub + "/argocd-redis", "Deployment " + a.hub + "/argocd-server", "StatefulSet " + a.hub + "/argocd-application-controller"} {
		require.Contains(t, said.output, where+" on the cluster (context hub): changed: ")
	}
	require.Contains(t, said.warnings, "agent.redis.tls.enabled")
	said = a.does(t, "redis configure-tls")
	require.NotContains(t, said.output, ": changed: ")
	require.Equal(t, 4, strings.Count(said.output, ": unchanged: "))

	apps := shared.Hub.Kubernetes.AppsV1().Deployments(a.hub)
	redis, err := apps.Get(t.Context(), "argocd-redis", metav1.GetOptions{})
	require.NoError(t, err)
	redis.Spec.Template.Spec.Containers[0].Command = []string{"/bin/sh", "-c"}
	redis.Spec.Template.Spec.Containers[0].Args = []string{"exec redis-server"}
	_, err = apps.Update(t.Context(), redis, metav1.UpdateOptions{})
	require.NoError(t, err)
	a.fails(t, "redis configure-tls", "container redis is run by a shell (/bin/sh): add --tls-port and what belongs to it by hand")

	// On a spoke the CA has no key, and what was issued by one of its own stays too.
	spoke := admin{hub: a.spoke, environment: []string{"KUBECONFIG=" + shared.Kubeconfigs(), "ARGOCD_AGENT_PRINCIPAL_CONTEXT=spoke-b", "ARGOCD_AGENT_PRINCIPAL_NAMESPACE=" + a.spoke}}
	a.does(t, "pki propagate --agent-context spoke-b")
	spoke.does(t, "redis generate-certs")
	require.Contains(t, spoke.does(t, "redis generate-certs").output, ": unchanged: ")
	spoke.fails(t, "redis generate-certs --ip 192.0.2.1", "it is not for 192.0.2.1: replace it with --upsert")
	before := secretOf(t, shared.Spoke("b"), a.spoke, "argocd-redis-tls").Data["ca.crt"]
	spoke.does(t, "redis generate-certs --ip 192.0.2.1 -u")
	require.NotEqual(t, before, secretOf(t, shared.Spoke("b"), a.spoke, "argocd-redis-tls").Data["ca.crt"], "nobody has kept the key of the one before")
}
