package argocd

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// annotationRegistered, on a cluster Secret that a principal made, lists the keys of labels and annotations that came with the
// registration. All others are people's, and stay.
const annotationRegistered = ownPrefix + "self-registered-keys"

// annotationApplied is kubectl's, and may hold all that a Secret has.
const annotationApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Registration is what a principal keeps in the cluster Secret of an agent that registers itself.
type Registration struct {
	Cluster

	// Mode is the one mode that the agent may have; empty for that which is there.
	Mode string
	// Keys are what ApplicationSets see; nil for those that are there.
	Keys *ClusterKeys
}

// registeredKeys is the value of annotationRegistered.
type registeredKeys struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// IsSelfRegistered reports whether a principal made a cluster Secret, and looks after it.
func IsSelfRegistered(secret *corev1.Secret) bool {
	return secret.Labels[LabelSelfRegistered] == "true"
}

// EndRegistration makes a cluster Secret one that no principal looks after.
func EndRegistration(secret *corev1.Secret) {
	delete(secret.Labels, LabelSelfRegistered)
	delete(secret.Annotations, annotationRegistered)
}

// Write puts the registration into a Secret, which may be a new one. What people have added to it stays, and wins.
func (r Registration) Write(secret *corev1.Secret) error {
	if err := r.Cluster.Write(secret); err != nil {
		return err
	}
	secret.Labels[LabelSelfRegistered] = "true"
	if r.Mode != "" {
		secret.Labels[LabelMode] = r.Mode
	}
	if r.Keys == nil {
		return nil
	}
	var known registeredKeys
	_ = json.Unmarshal([]byte(secret.Annotations[annotationRegistered]), &known) // what somebody else wrote there is nothing
	now := registeredKeys{
		Labels:      replaceKeys(secret.Labels, known.Labels, r.Keys.Labels),
		Annotations: replaceKeys(secret.Annotations, known.Annotations, r.Keys.Annotations),
	}
	text, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("cluster of agent %s: encode: %w", r.Agent, err)
	}
	if delete(secret.Annotations, annotationRegistered); len(now.Labels)+len(now.Annotations) > 0 {
		secret.Annotations[annotationRegistered] = string(text)
	}
	return nil
}

// replaceKeys makes entries of a map those that are wanted, and leaves alone what is neither known to be of earlier ones nor
// wanted. It returns the keys that are known from then on, sorted.
func replaceKeys(in map[string]string, known []string, wanted map[string]string) []string {
	for _, key := range known {
		if _, stays := wanted[key]; !stays && !isReservedMark(key) {
			delete(in, key)
		}
	}
	var now []string
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if _, there := in[key]; !there || slices.Contains(known, key) {
			in[key] = wanted[key]
			now = append(now, key)
		}
	}
	return now
}

// isReservedMark reports whether a key is one that makes a Secret an agent's cluster Secret, which no list of keys takes away.
func isReservedMark(key string) bool {
	switch key {
	case LabelSecretType, LabelAgent, LabelSelfRegistered, LabelMode, AnnotationSkipReconcile, annotationManagedBy, annotationRegistered:
		return true
	}
	return false
}

// Registered is what is remembered of a self-registered cluster Secret: enough to tell whether it is as it should be, and none of its
// credentials.
type Registered struct {
	Labels, Annotations map[string]string
	digest              [sha256.Size]byte
}

// ReadRegistered returns what is to be remembered of a Secret.
func ReadRegistered(secret *corev1.Secret) *Registered {
	r := &Registered{Labels: secret.Labels, Annotations: secret.Annotations, digest: clusterDigest(secret)}
	if _, ok := secret.Annotations[annotationApplied]; ok {
		r.Annotations = maps.Clone(secret.Annotations)
		delete(r.Annotations, annotationApplied)
	}
	return r
}

// Differences returns what a registration would change: none, or some of "server or credentials", "labels" and "annotations".
func (r *Registered) Differences(now Registration) ([]string, error) {
	secret := &corev1.Secret{}
	secret.Labels, secret.Annotations = maps.Clone(r.Labels), maps.Clone(r.Annotations)
	if err := now.Write(secret); err != nil {
		return nil, err
	}
	var differences []string
	if clusterDigest(secret) != r.digest {
		differences = append(differences, "server or credentials")
	}
	if !maps.Equal(secret.Labels, r.Labels) {
		differences = append(differences, "labels")
	}
	if !maps.Equal(secret.Annotations, r.Annotations) {
		differences = append(differences, "annotations")
	}
	return differences, nil
}

// clusterDigest is of what a cluster Secret tells Argo CD.
func clusterDigest(secret *corev1.Secret) [sha256.Size]byte {
	hash := sha256.New()
	for _, key := range []string{clusterNameKey, clusterServerKey, clusterConfigKey} {
		value := secret.Data[key]
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(value)))) // it never fails
		_, _ = hash.Write(value)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}
