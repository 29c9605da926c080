package argocd

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Record is what is kept of an AppProject, a Secret or a ConfigMap. It is never changed.
type Record struct {
	Head

	Immutable bool // its data cannot be changed

	content Content

	encoded func() encoded // of content, made when it is first asked for
	ruled   ruled
	left    struct {
		once sync.Once
		same bool
	}
	project  func() (*project, error)
	variants variants
}

// Content is what is synchronised of such an object, as it crosses the wire. Its JSON encoding is the same whenever it is
// equal.
type Content struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Type        string            `json:"type,omitempty"`
	Spec        json.RawMessage   `json:"spec,omitempty"`
	Data        map[string]string `json:"data,omitempty"`
	BinaryData  map[string]string `json:"binaryData,omitempty"`
}

// Encode returns a content in its JSON encoding, and the version of that.
func (c Content) Encode() ([]byte, converge.Version, error) {
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, converge.Version{}, fmt.Errorf("encode the content of an object: %w", err)
	}
	return payload, converge.VersionOf(payload), nil
}

// ReduceObject returns what is kept of an object.
func ReduceObject(o *Object, _ *Record) *Record {
	r := &Record{Head: headOf(&o.ObjectMeta), Immutable: o.Immutable}
	r.content = Content{
		Labels: o.Labels, Annotations: shared(o.Annotations), Type: o.Type, Data: o.Data, BinaryData: o.BinaryData,
		Spec: canonical(o.Spec),
	}
	r.encoded = sync.OnceValue(func() encoded { return encode(r.content) })
	r.project = sync.OnceValues(func() (*project, error) { return readProject(r.content.Spec) })
	return r
}

// canonical returns JSON in the form that is the same whenever it is equal. What is no JSON object, which no API server
// stores, stays as it is.
func canonical(raw json.RawMessage) json.RawMessage {
	if present(raw) == nil {
		return nil
	}
	decoded, err := decodeObject(raw)
	if err != nil {
		return raw
	}
	out, err := json.Marshal(decoded)
	if err != nil {
		return raw
	}
	return out
}

// Content returns what is synchronised of the object. It must not be changed.
func (r *Record) Content() Content { return r.content }

// AppliedVersion returns the source version that a replica object was made from. If the object has changed since, it returns
// the object's own version.
func (r *Record) AppliedVersion() converge.Version { return r.appliedVersion(r.encoded().version) }

// IsUnchanged reports whether the object still is as it was when it was applied, by its own annotation.
func (r *Record) IsUnchanged() bool {
	_, ok := r.unchangedSince(r.encoded().version)
	return ok
}

// SecretType returns what Argo CD uses a Secret for.
func (r *Record) SecretType() string { return r.Labels[LabelSecretType] }

// IsForeignSecret reports whether a Secret is used for something else than a repository, by Argo CD or, as its type says, by
// others.
func (r *Record) IsForeignSecret() bool {
	if slices.Contains(otherSecretTypes(), r.SecretType()) {
		return true
	}
	return r.content.Type != "" && r.content.Type != opaque
}

// SecretProject returns the project that a Secret of a repository belongs to, empty if to none.
func (r *Record) SecretProject() string {
	text, err := base64.StdEncoding.DecodeString(r.content.Data["project"])
	if err != nil {
		return ""
	}
	return string(text)
}

// SecretFault says what it is about the Secret of a repository that keeps it from every agent, empty if nothing is. It quotes
// nothing of what is in the Secret. Without a fault, SecretProject is what a project may be called.
func (r *Record) SecretFault() string {
	switch use, project := r.SecretType(), r.SecretProject(); {
	case use != SecretTypeRepository && use != SecretTypeRepoCreds:
		return fmt.Sprintf("label %s: %q is no type that Argo CD knows: want %s or %s", LabelSecretType, use, SecretTypeRepository, SecretTypeRepoCreds)
	case project == "":
		return "it belongs to no project, and agents get those of their projects: write the name of one under its key project"
	case strings.TrimSpace(project) != project:
		return "there is white space around the name under its key project, such as a newline at the end: write the name without"
	case len(validation.IsDNS1123Subdomain(project)) > 0:
		return "what is under its key project is no name that a project can have: write the name of one"
	}
	return ""
}
