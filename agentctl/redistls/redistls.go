// Package redistls has Argo CD's Redis speak TLS, and Argo CD's programs speak it to Redis, in an installation that is there.
package redistls

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
)

const (
	// folder is where containers have the Secret, and volume what it is called there.
	folder = "/app/config/redis-tls"
	volume = "argocd-agent-redis-tls"

	tlsPort = "--tls-port"
	useTLS  = "--redis-use-tls"
	caFile  = "--redis-ca-certificate"
)

// Component is a program of Argo CD that uses Redis, by its label and by the name of its container.
type Component struct{ label, container string }

// The programs of Argo CD that use Redis.
//
//nolint:gochecknoglobals // constants
var (
	Server     = Component{"server", "argocd-server"}
	RepoServer = Component{"repo-server", "argocd-repo-server"}
	Controller = Component{"application-controller", "argocd-application-controller"}
)

// Redis has the Deployment of Redis serve TLS alone, at the port that it has, with the certificate in a Secret.
func Redis(ctx context.Context, c *cluster.Client, deployment, secretName string) (cluster.Result, error) {
	if err := certificateIn(ctx, c, secretName); err != nil {
		return cluster.Result{}, err
	}
	all, err := c.Workloads(ctx)
	if err != nil {
		return cluster.Result{}, err
	}
	at := slices.IndexFunc(all, func(w cluster.Workload) bool { return w.Name == deployment })
	if at < 0 {
		return cluster.Result{}, fmt.Errorf("there is no Deployment %s/%s on %s: name that of Redis by --redis-deployment; Redis with sentinels gets TLS by its own installation",
			c.Namespace, deployment, c)
	}
	return c.ChangePods(ctx, &all[at], "TLS with the certificate of Secret "+secretName, func(pod *corev1.PodSpec) (bool, error) {
		redis := container(pod, "redis")
		if changed, err := extendable(redis, tlsPort); !changed {
			return false, err
		}
		mount(pod, redis, secretName, secret.CertificateKey, secret.PrivateKeyKey, secret.CAKey)
		redis.Args = append(redis.Args, tlsPort, "6379", "--port", "0", "--tls-auth-clients", "no", "--tls-cert-file", folder+"/"+secret.CertificateKey,
			"--tls-key-file", folder+"/"+secret.PrivateKeyKey, "--tls-ca-cert-file", folder+"/"+secret.CAKey)
		return true, nil
	})
}

// ArgoCD has programs of Argo CD use Redis by TLS, and trust the CA in a Secret. Each that is there is changed, and told.
func ArgoCD(ctx context.Context, c *cluster.Client, secretName string, tell func(cluster.Result, error) error, components ...Component) error {
	if err := certificateIn(ctx, c, secretName); err != nil {
		return err
	}
	all, err := c.Workloads(ctx)
	if err != nil {
		return err
	}
	for _, component := range components {
		at := slices.IndexFunc(all, func(w cluster.Workload) bool { return w.Is(component.label) })
		if at < 0 {
			continue // not all of them run on a hub, nor on a spoke
		}
		err := tell(c.ChangePods(ctx, &all[at], "Redis by TLS, of the CA in Secret "+secretName, func(pod *corev1.PodSpec) (bool, error) {
			program := container(pod, component.container)
			if changed, err := extendable(program, useTLS); !changed {
				return false, err
			}
			mount(pod, program, secretName, secret.CAKey)
			program.Args = append(program.Args, useTLS, caFile, folder+"/"+secret.CAKey)
			return true, nil
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// certificateIn says that a Secret has no certificate for Redis: a Pod that mounts it would not start.
func certificateIn(ctx context.Context, c *cluster.Client, name string) error {
	found, err := c.Get(ctx, name)
	if err != nil {
		return err
	}
	for _, key := range []string{secret.CertificateKey, secret.PrivateKeyKey, secret.CAKey} {
		if found == nil || len(found.Data[key]) == 0 {
			return fmt.Errorf("%s has no %s: create it with: argocd-agentctl redis generate-certs", c.Secret(name), key)
		}
	}
	return nil
}

// container returns the container of a name, or the first one.
func container(pod *corev1.PodSpec, name string) *corev1.Container {
	at := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	return &pod.Containers[max(at, 0)]
}

// extendable reports whether a program gets more arguments: not if it has the first of them already, nor can it if a shell runs it.
func extendable(c *corev1.Container, flag string) (bool, error) {
	if slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool { return strings.Contains(arg, flag) }) {
		return false, nil
	}
	if len(c.Command) > 0 && slices.Contains([]string{"sh", "bash"}, path.Base(c.Command[0])) {
		return false, fmt.Errorf("container %s is run by a shell (%s): add %s and what belongs to it by hand", c.Name, c.Command[0], flag)
	}
	return true, nil
}

// mount has a container have keys of a Secret, and no others.
func mount(pod *corev1.PodSpec, into *corev1.Container, secretName string, keys ...string) {
	items := make([]corev1.KeyToPath, 0, len(keys))
	for _, key := range keys {
		items = append(items, corev1.KeyToPath{Key: key, Path: key})
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secretName, Items: items},
	}})
	into.VolumeMounts = append(into.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: folder, ReadOnly: true})
}
