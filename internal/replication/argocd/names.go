// Package argocd holds what this project needs to know of Argo CD's objects: their wire form, reduced to what is
// synchronised, the names that Argo CD and the agent's users rely on, and how to read and write them. It does not
// import Argo CD, which would add 70 MB to every binary.
package argocd

import "strings"

// Names that Argo CD gives a meaning to (argo-cd, pkg/apis/application/v1alpha1).
const (
	// AnnotationRefresh asks the application controller for a refresh: "normal" or "hard". The controller removes it.
	AnnotationRefresh = "argocd.argoproj.io/refresh"
	// AnnotationHydrate asks for hydration along with a refresh. argocd-server sets both.
	AnnotationHydrate = "argocd.argoproj.io/hydrate"
	// FinalizerCascade begins the names of the finalizers by which the application controller deletes an application's
	// resources with it; "/foreground" or "/background" may follow.
	FinalizerCascade = "resources-finalizer.argocd.argoproj.io"
	// DefaultProject is the project that an application without one belongs to.
	DefaultProject = "default"
	// InCluster is the name by which Argo CD knows the cluster that it runs in.
	InCluster = "in-cluster"
	// LabelSecretType says what Argo CD takes a Secret for: a cluster, a repository, or the credentials of many repositories.
	LabelSecretType      = "argocd.argoproj.io/secret-type"
	SecretTypeCluster    = "cluster"
	SecretTypeRepository = "repository"
	SecretTypeRepoCreds  = "repo-creds"
	// KeysConfigMap holds the GPG keys that commits are verified by.
	KeysConfigMap = "argocd-gpg-keys-cm"

	// inClusterServer is the address of that cluster.
	inClusterServer = "https://kubernetes.default.svc"
)

// Names of this project's own, and of argocd-agent's: annotations, labels, infos of operations, conditions.
const (
	// AnnotationSourceUID is the UID of the object that an object was made from.
	AnnotationSourceUID = "argocd.argoproj.io/source-uid"
	// AnnotationPrincipalUID is what the hub is known by that an object came from.
	AnnotationPrincipalUID = "argocd.argoproj.io/principal-uid"
	// LabelIgnore, with the value "true", keeps an object from being synchronised.
	LabelIgnore = ownPrefix + "ignore-sync"
	// AnnotationAgent, on the hub, is the autonomous agent whose application or project an object only shows. On a spoke it is the
	// managed agent that a replica object is for: no other agent touches it.
	AnnotationAgent = ownPrefix + "agent"
	// AnnotationMirrorRules, on the same objects, identifies the rules by which they show it.
	AnnotationMirrorRules = ownPrefix + "mirror-rules"
	// AnnotationIntent, on the spoke, holds what was taken from the hub and is not yet withdrawn there.
	AnnotationIntent = ownPrefix + "intent"
	// AnnotationApplied, on a replica object, is the version of the source object that was applied last. If the replica
	// object's own version differs, that follows. While the replica object still has that version, even a program that has
	// just started knows that it is unchanged.
	AnnotationApplied = ownPrefix + "applied"
	// AnnotationClosed, on a replica object of a project on the spoke, is the namespace that its agent has closed to it.
	AnnotationClosed = ownPrefix + "closed-namespace"
	// InfoIntent names an operation among the operation's infos, so that it is done once: AGENT/ID, since it is asked of that
	// agent. What runs or ran on the spoke is shown on the hub with InfoMirror, whose value begins with the agent's name.
	InfoIntent = ownPrefix + "intent"
	InfoMirror = ownPrefix + "mirror"
	// ConditionAgent is the type of the conditions that say why an application, or an intent, does not get to the
	// other side.
	ConditionAgent = "AgentError"
	// ConditionHealth is the type of the condition on the hub that keeps an application's own health, as JSON, while the hub
	// shows a refusal in its place.
	ConditionHealth = "AgentHealth"

	ownPrefix = "argocd-agent.argoproj-labs.io/"
)

// local are the annotations that each side has for itself. Argo CD's notifications controller writes its state on both
// sides; kubectl's record of what was applied would double every object and means nothing elsewhere.
var local = map[string]bool{ //nolint:gochecknoglobals // a constant
	AnnotationRefresh:                                  true,
	AnnotationHydrate:                                  true,
	AnnotationSourceUID:                                true,
	AnnotationPrincipalUID:                             true,
	"argocd.argoproj.io/namespace-remapped":            true,
	"notified.notifications.argoproj.io":               true,
	"argocd-agent.argoproj.io/last-updated":            true,
	"kubectl.kubernetes.io/last-applied-configuration": true,
}

// RepositorySecrets selects the Secrets that Argo CD reads as those of repositories, and those that say to be of a type which
// it does not know: somebody may have meant one of these. All others it reads as something else.
func RepositorySecrets() string {
	return LabelSecretType + "," + LabelSecretType + " notin (" + strings.Join(otherSecretTypes(), ",") + ")"
}

// otherSecretTypes are the types of Secrets that Argo CD reads as something else than repositories that applications are deployed from.
func otherSecretTypes() []string {
	return []string{SecretTypeCluster, "scm-creds", "repository-write", "repo-write-creds"}
}

// settingsSecrets are the Secrets that programs of Argo CD, of this project and of argocd-agent read by their names. Each may be
// missing, and would be believed from the moment on that somebody makes one of its name.
var settingsSecrets = map[string]bool{ //nolint:gochecknoglobals // a constant
	"argocd-secret": true, "argocd-initial-admin-secret": true, "argocd-notifications-secret": true,
	"argocd-server-tls": true, "argocd-repo-server-tls": true, "argocd-repo-server-mtls": true, "argocd-dex-server-tls": true,
	"argocd-commit-server-tls": true, "argocd-redis": true, "argocd-redis-tls": true,
	"argocd-agent-ca": true, "argocd-agent-client-tls": true, "argocd-agent-jwt": true, "argocd-agent-principal-tls": true,
	"argocd-agent-resource-proxy-tls": true, "argocd-agent-kubeproxy-tls": true, "argocd-agent-redisproxy-tls": true,
	"argocd-agent-enrollment": true, "argocd-agent-enrollment-tokens": true,
}

// IsSettingsSecret reports whether a Secret of this name holds settings of Argo CD's or an agent's, and so no repository.
func IsSettingsSecret(name string) bool { return settingsSecrets[name] }

// IsLocal reports whether an annotation belongs to one side only, and is neither sent nor put back.
func IsLocal(annotation string) bool {
	return local[annotation] || strings.HasPrefix(annotation, ownPrefix)
}

// IsCascade reports whether a finalizer makes the application controller delete the application's resources.
func IsCascade(finalizer string) bool {
	return finalizer == FinalizerCascade || strings.HasPrefix(finalizer, FinalizerCascade+"/")
}

// IsArgoCDs reports whether a finalizer is one that Argo CD works off when an application is deleted.
func IsArgoCDs(finalizer string) bool {
	name, _, _ := strings.Cut(finalizer, "/")
	return strings.HasSuffix(name, "-finalizer.argocd.argoproj.io")
}
