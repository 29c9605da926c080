package manifest

import (
	_ "embed"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Where an agent that enrolls has its token.
const (
	// EnrollmentSecret is the Secret with the enrollment token, and EnrollmentKey its key there.
	EnrollmentSecret = "argocd-agent-enrollment"
	EnrollmentKey    = "token"
	// EnrollmentPortKey is the key of ParamsConfigMap with the principal's port for agents that enroll.
	EnrollmentPortKey = "agent.enrollment.port"
)

// ServerIDKey is the key of ParamsConfigMap with the principal's SPIFFE ID.
const ServerIDKey = "agent.principal.spiffe-id"

// The agent's Deployment, without its namespace, image and environment. The probes are at the ports that the agent has by default.
//
//go:embed deployment.yaml
var deploymentYAML []byte

// parameters are the keys of ParamsConfigMap that the agent knows, with the variables that they are. Most are argocd-agent's.
var parameters = []struct{ variable, key string }{ //nolint:gochecknoglobals // a constant table
	{"ARGOCD_AGENT_REMOTE_SERVER", "agent.server.address"},
	{"ARGOCD_AGENT_REMOTE_PORT", "agent.server.port"},
	{"ARGOCD_AGENT_ENROLLMENT_PORT", EnrollmentPortKey},
	{"ARGOCD_AGENT_PRINCIPAL_SPIFFE_ID", ServerIDKey},
	{"ARGOCD_AGENT_RENEW_CERTIFICATE", "agent.renew-certificate"},
	{"ARGOCD_AGENT_NAMESPACE", "agent.namespace"},
	{"ARGOCD_AGENT_MODE", ModeKey},
	{"ARGOCD_AGENT_CREDS", "agent.creds"},
	{"ARGOCD_AGENT_LOG_LEVEL", "agent.log.level"},
	{"ARGOCD_AGENT_LOG_FORMAT", "agent.log.format"},
	{"ARGOCD_AGENT_TLS_INSECURE", "agent.tls.client.insecure"},
	{"ARGOCD_AGENT_INSECURE_PLAINTEXT", "agent.tls.insecure-plaintext"},
	{"ARGOCD_AGENT_TLS_ROOT_CA_SECRET_NAME", "agent.tls.root-ca-secret-name"},
	{"ARGOCD_AGENT_TLS_ROOT_CA_PATH", "agent.tls.root-ca-path"},
	{"ARGOCD_AGENT_TLS_SECRET_NAME", "agent.tls.secret-name"},
	{"ARGOCD_AGENT_TLS_CLIENT_CERT_PATH", "agent.tls.client.cert-path"},
	{"ARGOCD_AGENT_TLS_CLIENT_KEY_PATH", "agent.tls.client.key-path"},
	{"ARGOCD_AGENT_TLS_MIN_VERSION", "agent.tls.min-version"},
	{"ARGOCD_AGENT_TLS_MAX_VERSION", "agent.tls.max-version"},
	{"ARGOCD_AGENT_TLS_CIPHERSUITES", "agent.tls.ciphersuites"},
	{"ARGOCD_AGENT_KEEP_ALIVE_PING_INTERVAL", "agent.keep-alive.interval"},
	{"ARGOCD_AGENT_ENABLE_RESOURCE_PROXY", "agent.resource-proxy.enable"},
	{"ARGOCD_AGENT_DESTINATION_BASED_MAPPING", ByDestination},
	{"ARGOCD_AGENT_CREATE_NAMESPACE", "agent.create-namespace"},
	{"ARGOCD_AGENT_ALLOWED_NAMESPACES", "agent.allowed-namespaces"},
	{"ARGOCD_AGENT_LABEL_SELECTOR", "agent.label-selector"},
	{"REDIS_ADDR", Redis},
	{"REDIS_USERNAME", "agent.redis.username"},
	{"ARGOCD_AGENT_REDIS_TLS_ENABLED", "agent.redis.tls.enabled"},
	{"ARGOCD_AGENT_REDIS_TLS_CA_PATH", "agent.redis.tls.ca-path"},
	{"ARGOCD_AGENT_REDIS_TLS_INSECURE", "agent.redis.tls.insecure"},
}

// deployment is the agent's.
func (s Spoke) deployment() (*appsv1.Deployment, error) {
	d := new(appsv1.Deployment)
	if err := yaml.UnmarshalStrict(deploymentYAML, d); err != nil {
		return nil, fmt.Errorf("deployment.yaml: %w", err)
	}
	d.Namespace = s.Namespace
	agent := &d.Spec.Template.Spec.Containers[0]
	agent.Image, agent.Env = s.Image, environment()
	return d, nil
}

// environment is the agent's: all of the ConfigMap and of the Secrets that there is.
func environment() []corev1.EnvVar {
	optional := true
	all := make([]corev1.EnvVar, 0, len(parameters)+2)
	for _, p := range parameters {
		all = append(all, corev1.EnvVar{Name: p.variable, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: ParamsConfigMap}, Key: p.key, Optional: &optional,
		}}})
	}
	for _, s := range []struct{ variable, secret, key string }{
		{"REDIS_PASSWORD", "argocd-redis", "auth"}, {"ARGOCD_AGENT_ENROLLMENT_TOKEN", EnrollmentSecret, EnrollmentKey},
	} {
		all = append(all, corev1.EnvVar{Name: s.variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.secret}, Key: s.key, Optional: &optional,
		}}})
	}
	return all
}

// Enrollment returns YAML of the Secret by which an agent gets its first certificate.
func Enrollment(namespace, token string) ([]byte, error) {
	text, err := yaml.Marshal(&corev1.Secret{
		TypeMeta: kind("v1", "Secret"), ObjectMeta: Spoke{Namespace: namespace}.named(EnrollmentSecret), Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{EnrollmentKey: []byte(token)},
	})
	return append([]byte("---\n"), text...), err
}
