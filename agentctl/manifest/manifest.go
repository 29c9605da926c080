// Package manifest makes what a spoke needs of an agent, its Deployment too, as YAML for kubectl, Kustomize or GitOps: so who registers
// an agent on the hub needs no access to the spoke.
package manifest

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Names of what is on the spoke. ParamsConfigMap is argocd-agent's: a Deployment maps its keys to the agent's environment.
const (
	ParamsConfigMap = "argocd-agent-params"
	ServiceAccount  = "argocd-agent-agent"
)

// Keys of ParamsConfigMap, on the hub and on a spoke, that others than the programs look at.
const (
	HubByDestination = "principal.destination-based-mapping"
	HubRedis         = "principal.redis.server.address"
	ModeKey          = "agent.mode"
	ByDestination    = "agent.destination-based-mapping"
	Redis            = "agent.redis.address"
)

// The agent's rights, as docs/operations.md describes them.
//
//go:embed role.yaml
var roleYAML []byte

//go:embed clusterrole.yaml
var clusterRoleYAML []byte

// Spoke says which agent a manifest is for.
type Spoke struct {
	// Namespace is that of Argo CD on the spoke.
	Namespace string
	// Mode is managed or autonomous.
	Mode string
	// Server and Port are where the agent reaches the principal.
	Server string
	Port   int
	// ServerID is the SPIFFE ID that the principal has to have; empty where it is known by the name of its host.
	ServerID string
	// EnrollmentPort is that of the principal for agents that enroll; 0 for one that has a certificate.
	EnrollmentPort int
	// Image is that of the agent's Deployment; empty for none.
	Image string
	// Secrets is YAML of the Secrets that the agent needs: the CA, and its certificate or an enrollment token.
	Secrets []byte
}

// file is one file of the Kustomize folder.
type file struct {
	name string
	text []byte
}

// YAML returns all objects as one stream of YAML documents.
func (s Spoke) YAML() ([]byte, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, f := range files {
		all.Write(f.text)
	}
	return all.Bytes(), nil
}

// MakeFolder makes a folder for WriteFolder, unless there is an empty one. What is made for a manifest, such as an enrollment token in the place
// of an older one, is made once it is known that it can be written.
func MakeFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("folder of the manifest: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("folder of the manifest: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("folder of the manifest: %s is not empty: name a new one", path)
	}
	return nil
}

// WriteFolder writes the objects and a kustomization.yaml into a new or empty folder. Only the user may read it: it has a private key.
func (s Spoke) WriteFolder(path string) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	if err := MakeFolder(path); err != nil {
		return err
	}
	list := struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
	}{"kustomize.config.k8s.io/v1beta1", "Kustomization", nil}
	for _, f := range files {
		list.Resources = append(list.Resources, f.name)
	}
	text, err := yaml.Marshal(list)
	if err != nil {
		return fmt.Errorf("kustomization.yaml: %w", err)
	}
	for _, f := range append(files, file{"kustomization.yaml", text}) {
		if err := os.WriteFile(filepath.Join(path, f.name), f.text, 0o600); err != nil {
			return fmt.Errorf("manifest: %w", err)
		}
	}
	return nil
}

func (s Spoke) files() ([]file, error) {
	rights, err := s.rights()
	if err != nil {
		return nil, err
	}
	type group struct {
		name    string
		objects []any
	}
	groups := []group{
		{"namespace.yaml", []any{&corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}}},
		{"rbac.yaml", rights},
		{"params.yaml", []any{s.params()}},
	}
	if s.Image != "" {
		deployment, err := s.deployment()
		if err != nil {
			return nil, err
		}
		groups = append(groups, group{"deployment.yaml", []any{deployment}})
	}
	var files []file
	for _, one := range groups {
		f := file{name: one.name}
		for _, object := range one.objects {
			text, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
			f.text = fmt.Appendf(f.text, "---\n%s", text)
		}
		files = append(files, f)
	}
	return append(files, file{"secrets.yaml", s.Secrets}), nil
}

// params is the ConfigMap of the agent's settings.
func (s Spoke) params() *corev1.ConfigMap {
	data := map[string]string{
		"agent.namespace": s.Namespace, ModeKey: s.Mode, "agent.creds": "mtls:any",
		"agent.server.address": s.Server, "agent.server.port": strconv.Itoa(s.Port),
	}
	if s.EnrollmentPort != 0 {
		data[EnrollmentPortKey] = strconv.Itoa(s.EnrollmentPort)
	}
	if s.ServerID != "" {
		data[ServerIDKey] = s.ServerID
	}
	return &corev1.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: s.named(ParamsConfigMap), Data: data}
}

// rights are the agent's ServiceAccount and what it may do.
func (s Spoke) rights() ([]any, error) {
	role, cluster := new(rbacv1.Role), new(rbacv1.ClusterRole)
	if err := yaml.UnmarshalStrict(roleYAML, role); err != nil {
		return nil, fmt.Errorf("role.yaml: %w", err)
	}
	if err := yaml.UnmarshalStrict(clusterRoleYAML, cluster); err != nil {
		return nil, fmt.Errorf("clusterrole.yaml: %w", err)
	}
	role.Namespace = s.Namespace
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: ServiceAccount}}
	const rbac = "rbac.authorization.k8s.io/v1"
	return []any{
		&corev1.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: s.named(ServiceAccount)},
		role,
		&rbacv1.RoleBinding{
			TypeMeta: kind(rbac, "RoleBinding"), ObjectMeta: s.named(role.Name), Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		},
		cluster,
		&rbacv1.ClusterRoleBinding{
			// Agents in several namespaces of a cluster have one each.
			TypeMeta: kind(rbac, "ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: cluster.Name + "-" + s.Namespace}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name},
		},
	}, nil
}

func (s Spoke) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name}
}

func kind(version, name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: name}
}
