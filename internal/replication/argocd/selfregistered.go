package argocd

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// annotationRegistered, on a cluster Secret that a principal made, says which labels and annotations came with the registration, and with
// which values. All others are people's, and so is a value that is another one by now: those stay.
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

// written is the value of annotationRegistered: what was written last, by its mark.
type written struct {
	Mode        string            `json:"mode,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// markOf stands for a value that was written.
func markOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:8])
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

// Write puts the registration into a Secret, which may be a new one. What people have added to it, or changed, stays, and wins.
func (r Registration) Write(secret *corev1.Secret) error {
	if err := r.Cluster.Write(secret); err != nil {
		return err
	}
	secret.Labels[LabelSelfRegistered] = "true"
	var last written
	_ = json.Unmarshal([]byte(secret.Annotations[annotationRegistered]), &last) // what somebody else wrote there is nothing
	if mode := secret.Labels[LabelMode]; r.Mode != "" && mode == last.Mode {
		secret.Labels[LabelMode], last.Mode = r.Mode, r.Mode
	}
	if r.Keys != nil {
		last.Labels = replaceKeys(secret.Labels, last.Labels, r.Keys.Labels)
		last.Annotations = replaceKeys(secret.Annotations, last.Annotations, r.Keys.Annotations)
	}
	text, err := json.Marshal(last)
	if err != nil {
		return fmt.Errorf("cluster of agent %s: encode: %w", r.Agent, err)
	}
	if delete(secret.Annotations, annotationRegistered); string(text) != "{}" {
		secret.Annotations[annotationRegistered] = string(text)
	}
	return nil
}

// replaceKeys makes entries of a map those that are wanted, and leaves alone what people added, changed or removed. It takes and returns
// what was written, and may yet become people's.
func replaceKeys(in, last, wanted map[string]string) (now map[string]string) {
	for key, mark := range last {
		if _, stays := wanted[key]; !stays && markOf(in[key]) == mark && !isReservedMark(key) {
			delete(in, key)
		}
	}
	now = make(map[string]string)
	for key, value := range wanted {
		mark, was := last[key]
		found, there := in[key]
		switch {
		case !was && !there, was && there && markOf(found) == mark:
			in[key], now[key] = value, markOf(value)
		case was:
			now[key] = mark // people changed it, and may change it back
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
