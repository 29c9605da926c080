package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// Request is what an audited user asked of the API server, and was answered.
type Request struct {
	User        string
	Verb        string // of Kubernetes, such as patch
	Resource    string // such as applications
	Subresource string
	Namespace   string // empty for all of them
	Name        string // empty for a list
}

// String is what a person calls it: user, verb, and what it was about.
func (r Request) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf("%s: %s %s %s/%s", r.User, r.Verb, resource, r.Namespace, r.Name)
}

// Requests returns what audited users were answered since a Mark of the API server, in that order. Watches and Leases are
// not among them. It needs Options.Audit.
func (c *Cluster) Requests(mark int64) ([]Request, error) {
	log, err := c.APIServer.LogFrom(mark)
	if err != nil {
		return nil, err
	}
	var requests []Request
	for line := range bytes.Lines(log) {
		whole := bytes.HasSuffix(line, []byte("\n")) // the last one may be on its way
		if !whole || !bytes.HasPrefix(line, []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/`)) {
			continue
		}
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource, Namespace, Name string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("audit log of %s: %w: %s", c.Name, err, line)
		}
		requests = append(requests, Request{
			User: event.User.Username, Verb: event.Verb,
			Resource: event.ObjectRef.Resource, Subresource: event.ObjectRef.Subresource,
			Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name,
		})
	}
	return requests, nil
}

// writeAuditPolicy writes what an API server reads to know of what it is to tell: of each request once, when it is answered.
func writeAuditPolicy(options Options) (string, error) {
	type rule struct {
		Level     string           `json:"level"`
		Users     []string         `json:"users,omitempty"`
		Verbs     []string         `json:"verbs,omitempty"`
		Resources []map[string]any `json:"resources,omitempty"`
	}
	policy, err := json.Marshal(map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
		"omitStages":        []string{"RequestReceived"},
		"omitManagedFields": true,
		"rules": []rule{
			{Level: "None", Verbs: []string{"watch"}},
			{Level: "None", Resources: []map[string]any{{"group": "coordination.k8s.io"}}},
			{Level: "Metadata", Users: options.Users},
		},
	})
	if err != nil {
		return "", err
	}
	return options.Host.Write(filepath.Join("clusters", options.Name, "audit-policy.json"), policy)
}

// auditArgs are the flags by which an API server tells in its log of what the policy in a file names.
func auditArgs(policy string) []string {
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=-"}
}
